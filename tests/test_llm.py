"""LLM as its users meet it, over real files: a puppet whose answers are known and a random llama."""

import gc
import os
import subprocess
import sys
