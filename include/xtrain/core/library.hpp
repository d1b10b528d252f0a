// Where functions are compiled. Header-only (default): headers include inline definitions (*_impl.hpp). With xtrain_add_library(), which defines XTRAIN_LIBRARY
// for all that link it: headers declare; the project compiles definitions once.
#pragma once

#ifdef XTRAIN_LIBRARY
#define XTRAIN_INLINE
#ifndef XTRAIN_COMPILES_LIBRARY
#error "with XTRAIN_LIBRARY definitions (*_impl.hpp) are compiled by the library only; include the header without _impl"
#endif
#else
#define XTRAIN_INLINE inline
#endif
