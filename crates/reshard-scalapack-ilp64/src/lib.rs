//! ScaLAPACK's redistribution routines for programs with integers of 64 bits: see the crate `reshard-scalapack`.

#![allow(unsafe_code)]

reshard_scalapack::export!(i64);
