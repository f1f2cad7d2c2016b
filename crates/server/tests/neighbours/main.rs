//! A well-behaved tenant beside a hostile one, in small sizes: `make bench` has the large ones, and the times. The
//! tests count: the hostile tenant is refused at a named limit, nothing is stored beyond it, the other tenant's work
//! succeeds meanwhile, and the process stays within its memory.

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
