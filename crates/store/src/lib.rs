//! Isobar.
