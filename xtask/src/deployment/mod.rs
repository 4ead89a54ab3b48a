//! Checks of `deploy/`. Nothing here needs a container engine or a cluster: images are not built and manifests are not applied.
//! The files are linted, compared with schemas and with each other, and the balancer and the chart are run.

mod balancer;
mod chart;
mod containers;
mod fake;
mod manifests;
mod service;
mod tools;
mod versions;

use anyhow::Result;

use crate::run::Run;
use tools::Tools;

pub use balancer::check as balancer;
pub use service::check as service;

/// The files that are only read: images, compose files, the chart, and the versions and variables that they name.
pub fn files(run: &mut Run) -> Result<()> {
    versions::check(&run.root)?;
    let tools = Tools::install(&run.root)?;
    containers::check(&run.root, &tools)?;
    chart::check(run, &tools)
}
