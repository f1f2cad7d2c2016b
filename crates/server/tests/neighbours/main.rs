//! A tenant that means no harm beside one that does, in small sizes: `make bench` has the large ones, and the times. Here
//! is what can be counted: the hostile tenant is told which bound it has met, nothing is kept beyond that bound, the other
//! one gets its work done meanwhile and loses nothing, and the process lives in its memory.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test's helpers fail with the test")]

mod designs;
mod doors;
#[path = "../../../../bench/src/sections/neighbours/malice.rs"]
#[allow(dead_code, reason = "the bench uses all of it")]
mod malice;
#[path = "../program_support/mod.rs"]
mod program_support;
mod roads;
mod street;
