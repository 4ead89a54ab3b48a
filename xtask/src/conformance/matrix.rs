//! Clients of each era with servers of each era: both sets of the suite against the fixture, which knows one era or both,
//! directly and through the gateway over every transport. The cases are generated from the tables below.

use std::fmt::Write;

use anyhow::{Result, bail};

use super::Eras::{Both, LegacyOnly, ModernOnly};
use super::Target::{Aggregate, Bridge, Direct, ReplicasAggregate, ReplicasServer, Server};
use super::Transport::{Sse, Stdio, StreamableHttp};
use super::report::Report;
use super::{Case, Conformance, Eras, LEGACY, MODERN, Set, Target, Transport, exclusions, page};
use crate::run::Run;

/// What the fixture must pass by itself.
const DIRECT: [(Set, Eras); 4] = [(LEGACY, LegacyOnly), (LEGACY, Both), (MODERN, ModernOnly), (MODERN, Both)];

/// What must pass through `toolgate stdio`.
const BRIDGED: [(Set, Eras); 4] =
    [(LEGACY, LegacyOnly), (LEGACY, Both), (MODERN, ModernOnly), (MODERN, Both)];

const SETS: [Set; 2] = [LEGACY, MODERN];
const SERVERS: [(Eras, &[Transport]); 3] = [
    (LegacyOnly, &[StreamableHttp, Stdio, Sse]),
    (ModernOnly, &[StreamableHttp, Stdio]),
    (Both, &[StreamableHttp, Stdio]),
];
/// The columns of the scores.
const TARGETS: [Target; 2] = [Server, Aggregate];

/// A client, and a server behind the gateway.
#[derive(Clone, Copy)]
struct Pair {
    set: Set,
    eras: Eras,
    transport: Transport,
}

impl Pair {
    fn case(self, conformance: &Conformance, target: Target) -> Result<Case> {
        let Pair { set, eras, transport } = self;
        let mut line = vec![conformance.program("conformance-fixture")?];
        let words: &[&str] = match transport {
            StreamableHttp => &["--http", "0"],
            Sse => &["--sse", "0"],
            Stdio => &["--stdio"],
        };
        line.extend(words.iter().map(|&word| word.to_owned()));
        line.extend(match eras {
            Both => None,
            LegacyOnly => Some("--legacy".to_owned()),
            ModernOnly => Some("--modern".to_owned()),
        });
        let excluded = match target {
            Direct => Vec::new(),
            Server | Aggregate | Bridge | ReplicasServer | ReplicasAggregate => {
                exclusions::of(&set, eras).collect()
            }
        };
        Ok(Case { name: self.name(target), set, line, way: (transport, target), excluded })
    }

    /// Such as `modern-to-legacy-stdio-aggregate`: the eras of client and server, the transport and the target.
    fn name(self, target: Target) -> String {
        let transport = match self.transport {
            StreamableHttp => "http",
            Stdio => "stdio",
            Sse => "sse",
        };
        let target = match target {
            Direct => "direct",
            Server => "native",
            Aggregate => "aggregate",
            Bridge => "bridge",
            ReplicasServer => "replicas-native",
            ReplicasAggregate => "replicas-aggregate",
        };
        format!("{}-to-{}-{transport}-{target}", self.set.era(), word(self.eras))
    }
}

pub fn direct(run: &mut Run) -> Result<()> {
    let pairs = DIRECT.map(|(set, eras)| (Pair { set, eras, transport: StreamableHttp }, Direct));
    measure(run, pairs.to_vec()).map(|_| ())
}

pub fn bridge(run: &mut Run) -> Result<()> {
    let pairs = BRIDGED.map(|(set, eras)| (Pair { set, eras, transport: StreamableHttp }, Bridge));
    measure(run, pairs.to_vec()).map(|_| ())
}

/// The sets against several gateways on one database behind a balancer. What must pass is the same as at one gateway.
pub fn replicas(run: &mut Run) -> Result<()> {
    let pairs = SETS.into_iter().flat_map(|set| [LegacyOnly, ModernOnly, Both].map(|eras| (set, eras)));
    let pairs = pairs.map(|(set, eras)| Pair { set, eras, transport: StreamableHttp });
    let cases = pairs.flat_map(|pair| [ReplicasServer, ReplicasAggregate].map(|target| (pair, target)));
    measure(run, cases.collect()).map(|_| ())
}

pub fn check(run: &mut Run) -> Result<()> {
    match measure_pairs(run)? {
        Some(scores) => page::compare(&run.root, &scores),
        None => Ok(()),
    }
}

pub fn write(run: &mut Run) -> Result<()> {
    match measure_pairs(run)? {
        Some(scores) => page::write(&run.root, &scores),
        None => bail!("only a run of all cases writes the scores"),
    }
}

/// Runs the pairs through the gateway. Returns the text for the page, if all cases were run.
fn measure_pairs(run: &Run) -> Result<Option<String>> {
    let mut pairs = Vec::new();
    for set in SETS {
        for (eras, transports) in SERVERS {
            pairs.extend(transports.iter().map(|&transport| Pair { set, eras, transport }));
        }
    }
    let cases = pairs.iter().flat_map(|pair| TARGETS.map(|target| (*pair, target))).collect();
    let reports = measure(run, cases)?;
    Ok((reports.len() == pairs.len() * TARGETS.len()).then(|| scores(&pairs, &reports)))
}

/// Runs those cases whose names match the filter. All of them run before this fails, so that one run shows all failures.
fn measure(run: &Run, mut wanted: Vec<(Pair, Target)>) -> Result<Vec<Report>> {
    wanted.retain(|(pair, target)| run.wants(&pair.name(*target)));
    if wanted.is_empty() {
        println!("  no case matches the filter");
        return Ok(Vec::new());
    }
    let conformance = Conformance::prepare(run)?;
    let cases = wanted.into_iter().map(|(pair, target)| pair.case(&conformance, target));
    let cases: Vec<Case> = cases.collect::<Result<_>>()?;
    let reports = conformance.measure_all(&cases)?;
    super::judge(&conformance, cases.iter().map(|case| case.name.as_str()).zip(&reports))?;
    Ok(reports)
}

/// The scores as they stand on the page. The reports are in the order of the pairs, one for each target.
fn scores(pairs: &[Pair], reports: &[Report]) -> String {
    let mut table = String::from(
        "| set | server | transport | native | aggregated | excluded |\n|---|---|---|---|---|---|\n",
    );
    let mut reasons = String::new();
    for (pair, cells) in pairs.iter().zip(reports.chunks(TARGETS.len())) {
        let transport = match pair.transport {
            StreamableHttp => "streamable HTTP",
            Stdio => "stdio",
            Sse => "SSE",
        };
        let cells: Vec<String> = cells.iter().map(Report::score).collect();
        let (revision, eras) = (pair.set.revision, word(pair.eras));
        let excluded: Vec<_> = exclusions::of(&pair.set, pair.eras).collect();
        let line =
            format!("| {revision} | {eras} | {transport} | {} | {} |", cells.join(" | "), excluded.len());
        table.push_str(&line);
        table.push('\n');
        for row in excluded {
            let line = format!("- `{}` of {revision} with a {eras} server: {}.\n", row.scenario, row.reason);
            if !reasons.contains(&line) {
                reasons.push_str(&line);
            }
        }
    }
    write!(table, "\nExcluded:\n\n{reasons}").expect("text can always be appended to");
    table
}

fn word(eras: Eras) -> &'static str {
    match eras {
        Both => "both",
        LegacyOnly => "legacy",
        ModernOnly => "modern",
    }
}
