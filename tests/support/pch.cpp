// Something for the precompiled header to belong to.
