//! The tests on Postgres, with a server of their own, which ends with them.

use anyhow::Result;

use crate::command;
use crate::postgres_server::PostgresServer;
use crate::run::Run;

/// Names the server to the tests.
const VARIABLE: &str = "TOOLGATE_TEST_POSTGRES";

/// Runs the integration tests on Postgres, and those of several gateways on one database.
pub fn tests(run: &mut Run) -> Result<()> {
    let server = PostgresServer::start()?;
    // The server that tests start as a child process.
    command::show(&run.root, &["cargo", "build", "--workspace", "--locked", "--quiet", "--examples"])?;
    let mut line = vec!["cargo", "test", "--workspace", "--locked", "--test", "it", "--test", "replicas"];
    let filter = run.filter.clone();
    line.extend(filter.as_deref());
    run.tests(&line, &[(VARIABLE, &server.url())])
}
