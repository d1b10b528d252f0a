// Where definitions of functions are compiled. Header-only, the default: headers include their definitions (*_impl.hpp), which are inline. With
// xtrain_add_library(), which defines XTRAIN_LIBRARY for everything that links the library: headers declare, and the definitions are
// compiled once, with the project.
#pragma once

#ifdef XTRAIN_LIBRARY
#define XTRAIN_INLINE
#ifndef XTRAIN_COMPILES_LIBRARY
#error "with XTRAIN_LIBRARY definitions (*_impl.hpp) are compiled by the library only; include the header without _impl"
#endif
#else
#define XTRAIN_INLINE inline
#endif
