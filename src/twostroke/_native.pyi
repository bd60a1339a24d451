"""Types of the native extension; the definitions are in native/bindings.cpp."""
