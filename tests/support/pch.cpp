// A source file for the precompiled header.
