// XTRAIN_HEADER_INLINE: for virtual functions that a class declares and an *_impl.hpp defines.
//
// A vtable is emitted with the class's first virtual function that is not inline. Without this macro, every header-only program would compile the vtable and
// all that its functions call; a class with only inline virtual functions costs nothing where it is unused.
#pragma once

#ifdef XTRAIN_LIBRARY
#define XTRAIN_HEADER_INLINE
#else
#define XTRAIN_HEADER_INLINE inline
#endif
