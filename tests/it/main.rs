//! The gateway through its front door: raw JSON in and out, against real servers on loopback.

#![allow(clippy::unwrap_used)]

mod support;

mod smoke;
