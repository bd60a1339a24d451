"""Ctrl-C has its exit code from the first import on, says nothing, and is left alone where others decide about it."""

import signal
import threading

from twostroke.cli.entry import leaving_on_interrupt


def test_ctrl_c_is_python_s_again_after_the_imports() -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with leaving_on_interrupt():
            assert signal.getsignal(signal.SIGINT) is not signal.default_int_handler
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_parent_that_ignores_ctrl_c_is_obeyed() -> None:
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with leaving_on_interrupt():
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_other_threads_import_without_a_say_about_signals() -> None:
    passed = []

    def enter() -> None:
        with leaving_on_interrupt():
            passed.append(True)

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    assert passed == [True]
