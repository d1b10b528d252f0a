// XTRAIN_HEADER_INLINE: for declarations, in classes, of virtual functions whose definitions are in an *_impl.hpp.
//
// Compilers emit a class's vtable where its first virtual function that is not declared inline is defined. Header-only that is every program that includes the
// header, even one that does not use the class, and each function of the vtable is compiled there, with all that it calls. A class whose virtual functions are
// all declared inline costs nothing where it is not used.
#pragma once

#ifdef XTRAIN_LIBRARY
#define XTRAIN_HEADER_INLINE
#else
#define XTRAIN_HEADER_INLINE inline
#endif
