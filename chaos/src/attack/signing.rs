//! Floods of what strangers may send to the authorization server: registrations, guessed codes, client ids and refresh tokens,
//! requests that stop in the middle, and codes that are used again. The database must not grow with any of it.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::task::JoinSet;
use toolgate_chaos::http::{Request, Response};

use crate::arena::{Arena, attempt};
use crate::plan::Plan;
use crate::raw;
use crate::verdict::{Attack, Verdict};

const REGISTRATIONS: usize = 10_000;
/// The registrations that an address may send at once.
const BURST: usize = 100;
const GUESSES: usize = 4000;
const CODES: usize = 8;
/// How often each code is used at once.
const REPLAYS: usize = 20;
/// Connections that flood at the same time.
const FLOODERS: usize = 8;
const LIMIT: Duration = Duration::from_secs(30);
/// The bytes that files may grow without anything stored in them: the log of the database before its checkpoint.
const SPARE: u64 = 512 * 1024;

/// The example of RFC 7636, appendix B.
const VERIFIER: &str = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
const CHALLENGE: &str = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";
const REDIRECT: &str = "http://localhost/cb";
const USER: &str = "token-of-somebody-who-agrees";
const FORM: (&str, &str) = ("Content-Type", "application/x-www-form-urlencoded");

pub async fn run(plan: &Plan) -> Result<Vec<Verdict>> {
    let arena = Arena::enterprise(plan, 64, |settings| {
        settings.variable("PUBLIC_URL", "http://localhost:9").variable("CALL_LOG", "off")
    })
    .await?;
    let user = json!({"username": "somebody", "access_token": USER});
    let made = arena.rest("POST", "/api/v0/users", &user).await?;
    ensure!(made.status == 201, "no user: {}", made.text());
    let agent = Agent::register(&arena).await?;
    arena
        .attack("registrations", "10,000 registrations from one address", async |attack| {
            registrations(&arena, attack).await
        })
        .await?;
    arena
        .attack("guesses at /token", "4,000 wrong codes, client ids and refresh tokens", async |attack| {
            guesses(&arena, &agent, attack).await
        })
        .await?;
    arena
        .attack("replayed codes", "8 codes, each used 20 times at once", async |attack| {
            replays(&arena, &agent, attack).await
        })
        .await?;
    let mut halves = Attack::new("half-sent requests", "120 requests to /authorize and /token that stop");
    arena.begin();
    attempt(&mut halves, async |attack| half_sent(&arena, &agent, attack).await).await;
    arena.judge(vec![halves]).await?;
    arena.close().await
}

async fn registrations(arena: &Arena, attack: &mut Attack) -> Result<()> {
    let counted = arena.refusals("registrations").await?;
    let software =
        json!({"redirect_uris": ["https://flood.example/callback"], "client_name": "x".repeat(100)});
    let bytes = raw::kept("POST", "/register", &[], software.to_string().as_bytes());
    let begun = Instant::now();
    let seen = flood(arena, attack, REGISTRATIONS, move |_| bytes.clone()).await?;
    let made = seen.get("201").copied().unwrap_or_default();
    let refused = seen.get("429 temporarily_unavailable").copied().unwrap_or_default();
    let refilled = usize::try_from(begun.elapsed().as_secs() * 2 + 2)?;
    // The agent of the other attacks has registered just before.
    attack.check((BURST / 2..=BURST + refilled).contains(&made), || format!("{made} were accepted"));
    attack.check(made + refused == REGISTRATIONS, || format!("other answers: {seen:?}"));
    let counted = usize::try_from(arena.refusals("registrations").await? - counted)?;
    attack.check(counted == refused, || format!("{counted} were counted, not {refused}"));
    Ok(())
}

async fn guesses(arena: &Arena, agent: &Agent, attack: &mut Attack) -> Result<()> {
    let id = agent.client_id.clone();
    let seen = flood(arena, attack, GUESSES, move |number| {
        let guess = format!("{number:043}");
        let (grant, id) = match number % 8 {
            0 => (format!("authorization_code&code={guess}"), id.clone()),
            1 => (format!("authorization_code&code=tgc_{guess}"), id.clone()),
            2 => (format!("refresh_token&refresh_token=tgr_{guess}"), id.clone()),
            3 => (format!("refresh_token&refresh_token={guess}"), id.clone()),
            4 => (format!("authorization_code&code={guess}"), format!("tgs_{guess}")),
            5 => (format!("refresh_token&refresh_token={guess}"), format!("client-{guess}")),
            6 => (format!("authorization_code&code={guess}"), format!("https://flood.example/{guess}")),
            _ => (format!("authorization_code&code={guess}"), String::new()),
        };
        let body = format!("grant_type={grant}&client_id={id}&code_verifier={VERIFIER}");
        raw::kept("POST", "/token", &[FORM], body.as_bytes())
    })
    .await?;
    let count = |what: &str| seen.get(what).copied().unwrap_or_default();
    let (grants, clients) = (count("400 invalid_grant"), count("401 invalid_client"));
    attack.check(grants == GUESSES / 8 * 5 && clients == GUESSES / 8 * 3, || format!("{seen:?}"));
    Ok(())
}

/// Sends requests on several connections, and counts the answers. The files of the gateway must not grow.
async fn flood(
    arena: &Arena,
    attack: &mut Attack,
    count: usize,
    request: impl Fn(usize) -> Vec<u8> + Clone + Send + 'static,
) -> Result<BTreeMap<String, usize>> {
    let before = size_of(arena.folder.path())?;
    let mut senders = JoinSet::new();
    for sender in 0..FLOODERS {
        let (address, request) = (arena.gateway.address.clone(), request.clone());
        senders.spawn(async move {
            let mut stream = raw::open(&address).await?;
            let mut seen: BTreeMap<String, usize> = BTreeMap::new();
            for number in (sender..count).step_by(FLOODERS) {
                stream.write_all(&request(number)).await?;
                let answer = raw::response(&mut stream, LIMIT).await.context("no answer")?;
                *seen.entry(kind(&answer)).or_default() += 1;
            }
            Ok::<_, anyhow::Error>(seen)
        });
    }
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for sent in senders.join_all().await {
        for (kind, count) in sent? {
            *seen.entry(kind).or_default() += count;
        }
    }
    let grown = size_of(arena.folder.path())?.saturating_sub(before);
    attack.check(grown < SPARE, || format!("the files of the gateway grew by {} KiB", grown / 1024));
    let told: Vec<_> = seen.iter().map(|(kind, count)| format!("{count} × {kind}")).collect();
    attack.came_back(told.join(", "));
    Ok(seen)
}

/// The status of an answer, and its error as the RFCs write it.
fn kind(answer: &Response) -> String {
    let body: Value = answer.json().unwrap_or_default();
    match (body["error"].as_str(), body["error_description"].as_str()) {
        (Some(error), Some(_)) => format!("{} {error}", answer.status),
        (Some(_), None) => format!("{} without a description", answer.status),
        (None, _) => answer.status.to_string(),
    }
}

/// The bytes of all files in a folder.
fn size_of(folder: &Path) -> Result<u64> {
    let mut size = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let found = entry.metadata()?;
        size += if found.is_dir() { size_of(&entry.path())? } else { found.len() };
    }
    Ok(size)
}

async fn replays(arena: &Arena, agent: &Agent, attack: &mut Attack) -> Result<()> {
    let cookie = sign_in(arena).await?;
    let mut given = 0;
    for _ in 0..CODES {
        let code = agent.code(arena, &cookie).await?;
        let mut sent = JoinSet::new();
        for _ in 0..REPLAYS {
            let (request, address) = (agent.redeem(&code), arena.gateway.address.clone());
            sent.spawn(async move { request.send(&address).await });
        }
        let mut access = None;
        for answer in sent.join_all().await {
            let answer = answer?;
            match kind(&answer).as_str() {
                "200" if access.is_none() => {
                    access = answer.json()?["access_token"].as_str().map(str::to_owned);
                }
                "400 invalid_grant" => {}
                other => attack.fail(format!("an answer was {other}")),
            }
        }
        // What the first use gave has ended with the second one.
        if let Some(access) = access {
            given += 1;
            let list = raw::post("/mcp", &raw::message("tools/list", &json!({}))).token(&access);
            let refused = arena.gateway.send(list).await?.status;
            attack.check(refused == 401, || format!("its token still works: {refused}"));
        }
    }
    let grants = arena.rest("GET", "/api/v0/grants", &json!({})).await?.json()?;
    attack.check(grants == json!([]), || format!("grants are left: {grants}"));
    attack.came_back(format!("{given} gave tokens, which ended at once"));
    Ok(())
}

async fn half_sent(arena: &Arena, agent: &Agent, attack: &mut Attack) -> Result<()> {
    let (head_times, body_times) = (arena.refusals("head_time").await?, arena.refusals("body_time").await?);
    let query = agent.query();
    let mut clients = JoinSet::new();
    for number in 0..120 {
        let bytes = match number % 3 {
            0 => format!("GET /authorize?{query} HTTP/1.1\r\nHost: localhost\r\nCookie: toolgate="),
            1 => "POST /token HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www".to_owned(),
            _ => format!(
                "POST /token HTTP/1.1\r\nHost: localhost\r\n{}: {}\r\nContent-Length: 9000\r\n\r\ngrant_type=",
                FORM.0, FORM.1
            ),
        };
        let address = arena.gateway.address.clone();
        clients.spawn(async move {
            let mut stream = raw::begin(&address, bytes.as_bytes()).await?;
            Ok::<_, anyhow::Error>(raw::until_closed(&mut stream, LIMIT + LIMIT).await)
        });
    }
    // Meanwhile somebody agrees, and their agent works.
    let cookie = sign_in(arena).await?;
    let code = agent.code(arena, &cookie).await?;
    let answer = arena.gateway.send(agent.redeem(&code)).await?;
    attack.check(answer.status == 200, || format!("an agent got {}", kind(&answer)));
    let mut closed = 0;
    for outcome in clients.join_all().await {
        match outcome? {
            Some(_) => closed += 1,
            None => attack.fail("a connection is still open"),
        }
    }
    let late =
        arena.refusals("head_time").await? - head_times + arena.refusals("body_time").await? - body_times;
    attack.check(late >= 120, || format!("{late} were counted"));
    attack.came_back(format!("{closed} closed in time"));
    Ok(())
}

/// Software that a person may agree to.
struct Agent {
    client_id: String,
}

impl Agent {
    async fn register(arena: &Arena) -> Result<Self> {
        let software = json!({"redirect_uris": [REDIRECT], "token_endpoint_auth_method": "none"});
        let made = arena.gateway.post("/register", &software).await?;
        ensure!(made.status == 201, "not registered: {}", made.text());
        let client_id = made.json()?["client_id"].as_str().context("no client id")?.to_owned();
        Ok(Self { client_id })
    }

    fn query(&self) -> String {
        let id = &self.client_id;
        format!(
            "response_type=code&client_id={id}&redirect_uri={REDIRECT}&code_challenge={CHALLENGE}\
             &code_challenge_method=S256&state=s"
        )
    }

    /// Gets a code with the consent of a person who is signed in.
    async fn code(&self, arena: &Arena, cookie: &str) -> Result<String> {
        let query = self.query();
        let ask = Request::new("GET", &format!("/authorize?{query}")).header("Cookie", cookie);
        let page = arena.gateway.send(ask).await?.text();
        let field = page.split_once("name=\"form_token\" value=\"").context("no page for consent")?.1;
        let form_token = field.split('"').next().unwrap_or_default();
        let query = query.replace('&', "%26").replace('=', "%3D");
        let body = format!("query={query}&form_token={form_token}&decision=allow");
        let answer = arena.gateway.send(form("/authorize", &body).header("Cookie", cookie)).await?;
        let place = answer.header("location").context("no redirect")?;
        let code = place.split_once("code=").context("no code")?.1;
        Ok(code.split('&').next().unwrap_or_default().to_owned())
    }

    fn redeem(&self, code: &str) -> Request {
        let id = &self.client_id;
        let body =
            format!("grant_type=authorization_code&client_id={id}&code={code}&code_verifier={VERIFIER}");
        form("/token", &body)
    }
}

/// Signs the person in, and returns the cookie.
async fn sign_in(arena: &Arena) -> Result<String> {
    let answer = arena.gateway.send(form("/login", &format!("token={USER}"))).await?;
    let set = answer.header("set-cookie").context("nobody is signed in")?;
    Ok(set.split(';').next().unwrap_or_default().to_owned())
}

fn form(path: &str, body: &str) -> Request {
    let mut request = Request::new("POST", path).header(FORM.0, FORM.1);
    request.body = body.as_bytes().to_vec();
    request
}
