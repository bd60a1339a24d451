"""What a chat is beyond its texts: tools, calls, reasoning; how each family of templates writes them."""
