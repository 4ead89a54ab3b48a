//! Concurrent calls of every outcome, through every door and over every wire: each is counted once, and each releases
//! its slot under `max_concurrency` once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::support::doors::Begun;
use crate::support::{Callers, Door, Said, Server, Tally, TestApp, Wire, eventually};

const PLACES: usize = 3;
const CALLS: usize = 400;
const SEED: u64 = 0x7001_9a7e;

/// A random generator that depends only on the seed.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        let count = u64::try_from(from.len()).unwrap();
        from[usize::try_from(self.next() % count).unwrap()]
    }
}

/// The planned outcome of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Answered,
    ReportsAnError,
    RefusedByTheServer,
    BrokenAnswer,
    /// The connection closes after the call ran.
    Lost,
    /// The same, but the call may run twice, and the second run is answered.
    LostAndRepeated,
    Late,
    GivenUp,
    Unknown,
    Disabled,
}

impl Fate {
    const ALL: [Self; 10] = [
        Self::Answered,
        Self::ReportsAnError,
        Self::RefusedByTheServer,
        Self::BrokenAnswer,
        Self::Lost,
        Self::LostAndRepeated,
        Self::Late,
        Self::GivenUp,
        Self::Unknown,
        Self::Disabled,
    ];

    fn outcome(self) -> &'static str {
        match self {
            Fate::Answered | Fate::LostAndRepeated => "ok",
            Fate::ReportsAnError => "tool_error",
            Fate::RefusedByTheServer | Fate::BrokenAnswer | Fate::Lost => "upstream_error",
            Fate::Late => "timed_out",
            Fate::GivenUp => "cancelled",
            Fate::Unknown | Fate::Disabled => "denied",
        }
    }

    fn call(self) -> (&'static str, Value) {
        match self {
            Fate::Answered | Fate::Disabled => ("echo", json!({})),
            Fate::ReportsAnError => ("fail", json!({})),
            Fate::RefusedByTheServer => ("rpc_error", json!({})),
            Fate::BrokenAnswer => {
                ("verbatim", json!({"answer": r#"{"jsonrpc":"2.0","id":$ID,"result":{}}}"#}))
            }
            Fate::Lost => ("echo", json!({"lose": 1})),
            Fate::LostAndRepeated => ("read_only", json!({"lose": 1})),
            Fate::Late | Fate::GivenUp => ("slow", json!({"ms": 600_000})),
            Fate::Unknown => ("nothing", json!({})),
        }
    }

    /// Wires on which a lost call affects no other call; on the others all calls of a server share the connection.
    fn is_possible_over(self, wire: Wire) -> bool {
        wire.is_streamable() || !matches!(self, Fate::Lost | Fate::LostAndRepeated)
    }
}

/// One server of each kind: with a long timeout, with a short one, and disabled.
struct Site {
    wire: Wire,
    patient: Server,
    hasty: Server,
    off: Server,
}

impl Site {
    async fn register(app: &TestApp, wire: Wire) -> Self {
        let name = |kind: &str| format!("{wire:?}-{kind}");
        let settings = |timeout: u64| json!({"max_concurrency": PLACES, "timeout_ms": timeout});
        let (patient, hasty, off) = (name("patient"), name("hasty"), name("off"));
        let site = Self {
            wire,
            patient: Server::register(app, wire, &patient, settings(300_000)).await,
            hasty: Server::register(app, wire, &hasty, settings(300)).await,
            off: Server::register(app, wire, &off, settings(300_000)).await,
        };
        app.post(&format!("/api/v0/servers/{off}/disable"), json!({})).await.expect(200);
        site
    }

    fn server(&self, fate: Fate) -> &Server {
        match fate {
            Fate::Late => &self.hasty,
            Fate::Disabled => &self.off,
            _ => &self.patient,
        }
    }

    /// Makes a call and checks its response.
    async fn run(&self, callers: &Callers, door: Door, fate: Fate, mark: &str) {
        let server = self.server(fate);
        let (tool, mut arguments) = fate.call();
        (arguments["mark"], arguments["text"]) = (json!(mark), json!(mark));
        let (tool, context) = (server.tool(tool), format!("{:?} {door:?} {fate:?} {mark}", self.wire));
        if fate == Fate::GivenUp {
            let begun = callers.begin(door, &tool, arguments).await;
            eventually(&format!("{context} runs"), async || server.ran(mark) == 1).await;
            begun.give_up().await;
            eventually(&format!("{context} is cancelled"), async || server.cancelled(mark) == 1).await;
            return;
        }
        let said = callers.call(door, &tool, arguments).await;
        match (&said, fate.outcome()) {
            (Said::Text(text), "ok") => assert_eq!(text, mark, "{context}"),
            (Said::ToolError(_), "tool_error")
            | (Said::Error(_), "upstream_error" | "timed_out" | "denied") => {}
            _ => panic!("{context}: {said:?}"),
        }
    }

    /// Checks that exactly as many calls as there are slots run at once.
    async fn has_all_places(&self, callers: &Callers) {
        let (server, wire) = (&self.patient, self.wire);
        let begin = async |tool: &str, mark: &str, door: Door| -> Begun {
            callers.begin(door, &server.tool(tool), json!({"ms": 600_000, "mark": mark})).await
        };
        let mut running = Vec::new();
        for (number, door) in Door::ALL.into_iter().take(PLACES).enumerate() {
            running.push(begin("slow", &format!("place-{number}"), door).await);
        }
        for number in 0..PLACES {
            let mark = format!("place-{number}");
            eventually(&format!("{wire:?}: {mark} runs"), async || server.ran(&mark) == 1).await;
        }
        // A caller that disconnects while waiting neither runs nor keeps a slot. Legacy clients are left out: the test
        // cannot know when their call waits and can be cancelled.
        for door in Door::ALL.into_iter().filter(|door| *door != Door::Legacy) {
            begin("echo", &format!("leaves-{door:?}"), door).await.give_up().await;
        }
        let mut waiting = Vec::new();
        for door in Door::ALL {
            waiting.push(begin("echo", &format!("waits-{door:?}"), door).await);
        }
        // Gives a mistake time to show: meanwhile another server is called, and works.
        self.run(callers, Door::Rest, Fate::Late, "meanwhile").await;
        for door in Door::ALL {
            assert_eq!(server.ran(&format!("waits-{door:?}")), 0, "{wire:?} {door:?} waits");
        }
        running.pop().unwrap().give_up().await;
        for door in Door::ALL {
            let mark = format!("waits-{door:?}");
            eventually(&format!("{wire:?}: {mark} runs in its turn"), async || server.ran(&mark) == 1).await;
            assert_eq!(server.ran(&format!("leaves-{door:?}")), 0, "{wire:?} {door:?} has left");
        }
        for begun in running {
            begun.give_up().await;
        }
    }

    /// The same for short calls: this many of them reach the server before the first has ended.
    async fn has_all_hasty_places(&self, callers: &Callers) {
        let rounds = AtomicUsize::new(0);
        eventually(&format!("{:?}: late calls gave their places back", self.wire), async || {
            let round = rounds.fetch_add(1, Ordering::Relaxed);
            let marks: Vec<_> = (0..PLACES).map(|number| format!("hasty-{round}-{number}")).collect();
            let mut calls = JoinSet::new();
            for mark in &marks {
                let (callers, tool) = (callers.clone(), self.hasty.tool("slow"));
                let arguments = json!({"ms": 600_000, "mark": mark});
                calls.spawn(async move { callers.call(Door::Rest, &tool, arguments).await });
            }
            calls.join_all().await;
            marks.iter().all(|mark| self.hasty.ran(mark) == 1)
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_mixed_load_is_counted_call_by_call_and_leaves_every_place_free() {
    let app = Arc::new(TestApp::start_with(|config| config.telemetry = true).await);
    let callers = Callers::of(&app).await;
    let mut sites = JoinSet::new();
    for wire in Wire::ALL {
        let app = app.clone();
        sites.spawn(async move { Arc::new(Site::register(&app, wire).await) });
    }
    let sites = sites.join_all().await;
    let mut dice = Dice(SEED);
    let mut expected: BTreeMap<&str, u64> = BTreeMap::new();
    let mut calls = JoinSet::new();
    for number in 0..CALLS {
        let site = sites[usize::try_from(dice.next()).unwrap_or_default() % sites.len()].clone();
        let (door, mut fate) = (dice.pick(&Door::ALL), dice.pick(&Fate::ALL));
        while !fate.is_possible_over(site.wire) {
            fate = dice.pick(&Fate::ALL);
        }
        *expected.entry(fate.outcome()).or_default() += 1;
        let callers = callers.clone();
        calls.spawn(async move { site.run(&callers, door, fate, &format!("call-{number}")).await });
    }
    calls.join_all().await;
    let sum = u64::try_from(CALLS).unwrap();
    let tally = Tally::reaches(&app, sum).await;
    assert_eq!(tally.by_outcome(), expected, "seed {SEED:#x}");
    assert_eq!(tally.sum(), sum, "seed {SEED:#x}");
    let mut checks = JoinSet::new();
    for site in sites {
        let callers = callers.clone();
        checks.spawn(async move {
            site.has_all_places(&callers).await;
            site.has_all_hasty_places(&callers).await;
        });
    }
    checks.join_all().await;
}
