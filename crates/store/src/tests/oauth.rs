//! Tests of what the authorization server keeps: that secrets are found by their digests only, and that rotation agrees.

use super::people::user;
use super::{file, noted, noted_at, open, open_with_key};
use crate::oauth::HeldCredentials;
use crate::{
    AccessContent, Consent, ConsentOfGrant, CredentialUses, NewCode, NewOpaque, NewUserGrant, OAuthClient,
    OpaqueDigest, OpaqueKind, Rotation, RotationOptions, Store, form_token,
};
use model::{GrantId, PrincipalId, Reach, Secret};

const HOUR: i64 = 60 * 60 * 1000;
const ANN: PrincipalId = PrincipalId(7);

/// A grant with its first refresh token.
pub struct Given {
    pub id: GrantId,
    pub refresh: NewOpaque,
}

async fn generate(store: &Store, kind: OpaqueKind) -> NewOpaque {
    store.opaque_tokens().await.unwrap().generate(kind)
}

async fn digest(store: &Store, secret: &Secret) -> OpaqueDigest {
    store.opaque_tokens().await.unwrap().digest(OpaqueKind::Refresh, secret.expose()).unwrap()
}

pub async fn code(store: &Store, user: PrincipalId, content: &str, at: i64) -> OpaqueDigest {
    let code = generate(store, OpaqueKind::Code).await.digest;
    let (content, reach) = (Secret::new(content), Reach::Everything);
    let consent = Consent { client_id: "c", redirect_uri: "r", reach: &reach, is_remembered: true };
    let new = NewCode { digest: &code, user, content: &content, expires_at_ms: at + 60_000, consent };
    store.insert_code(&new, &noted_at(at)).await.unwrap();
    code
}

pub async fn give(store: &Store, user: PrincipalId, software: &str, at: i64) -> Given {
    let code = code(store, user, "content", at).await;
    let (id, refresh) = (GrantId::random(), generate(store, OpaqueKind::Refresh).await);
    let grant = NewUserGrant {
        id,
        user,
        client_id: "c",
        client_name: "name",
        software: &Secret::new(software),
        reach: &Reach::parse("/mcp"),
        refresh: &refresh.digest,
        expires_at_ms: at + 30 * 24 * HOUR,
    };
    store.redeem_code(&code, &grant, &noted_at(at)).await.unwrap().unwrap();
    assert!(store.redeem_code(&code, &grant, &noted_at(at)).await.unwrap().is_none(), "it works once");
    Given { id, refresh }
}

async fn rotate(store: &Store, given: &Given, token: &Secret, now: i64) -> Rotation {
    let (token, next) = (digest(store, token).await, generate(store, OpaqueKind::Refresh).await);
    store.rotate(&token, given.id, &next, now, now + 30 * 24 * HOUR).await.unwrap()
}

fn successor(rotation: Rotation) -> Secret {
    match rotation {
        Rotation::Successor(successor) => successor,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_successor_is_kept_for_as_long_as_the_token_before_it_works() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path().join("toolgate.db")).await.unwrap();
    let given = give(&store, ANN, "software", 1).await;
    let second = successor(rotate(&store, &given, &given.refresh.secret, 1000).await);
    assert_eq!(successor(rotate(&store, &given, &given.refresh.secret, 5 * HOUR).await), second);
    let third = successor(rotate(&store, &given, &second, 5 * HOUR).await);
    // The first token was replaced long ago, and its successor was used.
    store.end_expired(6 * HOUR, 0, 0).await.unwrap();
    assert!(matches!(rotate(&store, &given, &given.refresh.secret, 6 * HOUR).await, Rotation::Reused));
    assert_eq!(successor(rotate(&store, &given, &second, 9 * HOUR).await), third);
    let grant = store.refreshed_grant(&digest(&store, &third).await).await.unwrap().unwrap();
    assert_eq!((grant.grant.id, grant.software.expose()), (given.id, "software"));
    // A token of another grant does not work for this one.
    let other = give(&store, ANN, "software", 1).await;
    assert!(matches!(rotate(&store, &given, &other.refresh.secret, 1000).await, Rotation::Unknown));
    let ended = store.end_grant(&grant.grant, ConsentOfGrant::Keep, &noted()).await.unwrap();
    assert!(ended.is_some());
    assert!(store.end_grant(&grant.grant, ConsentOfGrant::Keep, &noted()).await.unwrap().is_none());
    assert!(matches!(rotate(&store, &given, &third, 9 * HOUR).await, Rotation::Unknown));
    assert!(store.refreshed_grant(&digest(&store, &third).await).await.unwrap().is_none());
}

#[tokio::test]
async fn a_user_has_a_limited_number_of_grants_codes_and_sessions() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path().join("toolgate.db")).await.unwrap();
    let first = give(&store, ANN, "software", 1).await;
    let second = give(&store, ANN, "software", 2).await;
    let other = give(&store, PrincipalId(8), "software", 1).await;
    let uses = CredentialUses { grants: vec![(first.id, 500)], sessions: vec![] };
    store.note_uses(&uses).await.unwrap();
    for at in 3..=201 {
        give(&store, ANN, "software", at).await;
    }
    let ids: Vec<_> = store.user_grants(Some(ANN)).await.unwrap().iter().map(|grant| grant.id).collect();
    assert_eq!(ids.len(), 200);
    assert!(ids.contains(&first.id) && !ids.contains(&second.id), "the least recently used one ended");
    assert_eq!(store.user_grants(None).await.unwrap().len(), 201);
    assert_eq!(store.held_grant(other.id).await.unwrap().value, Some(PrincipalId(8)));
    let mut ended = 0;
    for at in 1..=60 {
        let cookie = generate(&store, OpaqueKind::Session).await.digest;
        ended += store.insert_browser_session(&cookie, ANN, &noted_at(at)).await.unwrap().ended.len();
    }
    assert_eq!((ended, store.load(0).await.unwrap().browser_sessions.len()), (10, 50));
    store.end_credentials(ANN, &noted()).await.unwrap();
    assert_eq!(store.held_credentials(ANN).await.unwrap().value, HeldCredentials::default());
    assert_eq!(store.load(0).await.unwrap().held_grants, [(other.id, PrincipalId(8))]);
}

#[tokio::test]
async fn credentials_end_with_their_user_and_when_they_expire() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path().join("toolgate.db")).await.unwrap();
    let ann = user("ann", "12345678");
    store.put_user(&ann, 1, &noted()).await.unwrap();
    let given = give(&store, ann.id, "software", 1).await;
    let cookie = generate(&store, OpaqueKind::Session).await.digest;
    store.insert_browser_session(&cookie, ann.id, &noted_at(1)).await.unwrap();
    store.delete_user(&ann, 2, &noted()).await.unwrap();
    assert!(store.user_grant(given.id).await.unwrap().is_none());
    assert!(store.browser_session(&cookie).await.unwrap().value.is_none());
    assert!(!store.has_consent(ann.id, "c", "r", &Reach::Everything).await.unwrap());

    let given = give(&store, ANN, "software", 1).await;
    store.insert_browser_session(&cookie, ANN, &noted_at(100)).await.unwrap();
    let (_, users) = store.end_expired(2, 99, 99).await.unwrap();
    assert!(users.is_empty() && store.user_grant(given.id).await.unwrap().is_some());
    let (_, users) = store.end_expired(1 + 30 * 24 * HOUR, 99, 100).await.unwrap();
    assert_eq!(users, [ANN]);
    assert!(store.user_grant(given.id).await.unwrap().is_none());
    assert!(store.browser_session(&cookie).await.unwrap().value.is_none());
}

#[tokio::test]
async fn an_access_token_opens_under_the_same_key_only() {
    let directory = tempfile::tempdir().unwrap();
    let open = async |name: &str, key: &str| {
        let store = open_with_key(directory.path().join(name), &key.repeat(32)).await.unwrap();
        store.opaque_tokens().await.unwrap()
    };
    let (one, other) = (open("a.db", "0a").await, open("b.db", "0b").await);
    for reach in ["", "/mcp", "/v0/groups/a/sse"] {
        let content =
            AccessContent { grant: GrantId::random(), reach: Reach::parse(reach), expires_at_ms: 1 << 50 };
        let token = one.make_access(&content);
        assert!(token.expose().starts_with("tga_"));
        assert_eq!(one.open_access(token.expose().as_bytes()), Some(content));
        assert_eq!(other.open_access(token.expose().as_bytes()), None);
        assert!(one.is_access(token.expose().as_bytes()) && !other.is_access(token.expose().as_bytes()));
        for end in 0..token.expose().len() {
            let cut = &token.expose().as_bytes()[..end];
            assert!(one.open_access(cut).is_none() && !one.is_access(cut), "cut at {end}");
        }
    }
}

#[tokio::test]
async fn only_what_was_given_out_here_has_a_digest() {
    let directory = tempfile::tempdir().unwrap();
    let [one, other] = ["a.db", "b.db"].map(|name| directory.path().join(name));
    let (store, other) = (open(&one).await.unwrap(), open(&other).await.unwrap());
    let (tokens, others) = (store.opaque_tokens().await.unwrap(), other.opaque_tokens().await.unwrap());
    let made = tokens.generate(OpaqueKind::Refresh);
    let text = made.secret.expose();
    assert!(text.starts_with("tgr_") && text.len() == 52, "{}", text.len());
    assert!(tokens.digest(OpaqueKind::Refresh, text) == Some(made.digest.clone()));
    assert!(tokens.digest(OpaqueKind::Code, &text.replace("tgr_", "tgc_")).is_none());
    assert!(others.digest(OpaqueKind::Refresh, text).is_none(), "nobody else can make the checksum");
    let again = store.opaque_tokens().await.unwrap();
    assert!(again.digest(OpaqueKind::Refresh, text).is_some(), "the key is kept");
    for end in 0..text.len() {
        let mut changed = text.as_bytes().to_vec();
        changed[end] = if changed[end] == b'A' { b'B' } else { b'A' };
        for wrong in [&text[..end], std::str::from_utf8(&changed).unwrap()] {
            assert!(tokens.digest(OpaqueKind::Refresh, wrong).is_none(), "{end}");
        }
    }
    assert!(tokens.digest(OpaqueKind::Refresh, &format!("tgr_{}", "é".repeat(24))).is_none());
    assert_ne!(made.secret, tokens.generate(OpaqueKind::Refresh).secret);
    let [one, other] = [(); 2].map(|()| tokens.generate(OpaqueKind::Session).secret);
    assert_eq!(form_token(&one), form_token(&one));
    assert_ne!(form_token(&one), form_token(&other));
}

#[tokio::test]
async fn refresh_tokens_survive_another_secret_key() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("toolgate.db");
    let store = open(&path).await.unwrap();
    let given = give(&store, ANN, "software", 1).await;
    let second = successor(rotate(&store, &given, &given.refresh.secret, 1000).await);
    let content = AccessContent { grant: given.id, reach: Reach::Everything, expires_at_ms: 1 << 50 };
    let access = store.opaque_tokens().await.unwrap().make_access(&content);
    store.close().await;
    let (new_key, database) = (Secret::new("5a".repeat(32)), file(&path));
    let options = RotationOptions { database, secret_key: None, new_key, finish: false, now_ms: 3 };
    assert!(crate::rotate(&options).await.unwrap().is_finished);
    let store = open(&path).await.unwrap();
    assert_eq!(successor(rotate(&store, &given, &given.refresh.secret, 2000).await), second);
    successor(rotate(&store, &given, &second, 2000).await);
    let tokens = store.opaque_tokens().await.unwrap();
    let access = access.expose().as_bytes();
    assert!(tokens.open_access(access).is_none() && tokens.is_access(access), "it is refused, but no guess");
}

#[tokio::test]
async fn registered_software_is_found_by_its_client_id() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path().join("toolgate.db")).await.unwrap();
    let client = OAuthClient {
        id: "i".into(),
        client_id: "tgo_1".into(),
        name: "n".into(),
        software: Secret::new("software"),
        created_at_ms: 5,
    };
    store.insert_oauth_client(&client, &noted()).await.unwrap();
    let found = store.oauth_client("tgo_1").await.unwrap().unwrap();
    assert_eq!((found.id.as_str(), found.software.expose(), found.created_at_ms), ("i", "software", 5));
    assert!(store.oauth_client("i").await.unwrap().is_none());
    assert!(store.delete_oauth_client("i", &noted()).await.unwrap());
    assert!(!store.delete_oauth_client("i", &noted()).await.unwrap());
    assert!(store.oauth_clients().await.unwrap().is_empty());
}
