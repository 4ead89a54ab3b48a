//! The API behind the browser's dashboard; development mode only. Nothing here ever shows a secret.

pub mod oauth;
