//! Tests that users and clients are read back as they were stored, with their tokens.

use serde_json::json;

use super::{noted, open};
use crate::db::on;
use crate::{Store, StoreError};
use model::{
    AllowList, Client, HolderName, IdpAccount, IdpGroup, Mode, PrincipalId, RateLimit, Role, Token, User,
};

const LIMIT: RateLimit = RateLimit { calls_per_minute: u32::MAX, burst: Some(1) };

pub fn user(name: &str, token: &str) -> User {
    let username = HolderName::parse(name).unwrap();
    let token = Token::parse(token).unwrap();
    User::local(username, Role::Admin, token)
}

pub fn client(name: &str, token: &str) -> Client {
    let body =
        json!({"name": name, "access_token": token, "allow_list": ["b", "*", "a"], "description": "d"});
    Client::parse(body.as_object().unwrap().clone()).unwrap()
}

/// The fields of a user that are compared, in order.
type Shown<'a> = (
    PrincipalId,
    &'a str,
    Role,
    Option<&'a Token>,
    Option<RateLimit>,
    &'a [String],
    bool,
    Option<&'a IdpAccount>,
);

fn shown(users: &[User]) -> Vec<Shown<'_>> {
    fn show(user: &User) -> Shown<'_> {
        let User { id, username, role, token, rate_limit, allow_list, is_disabled, idp } = user;
        let (token, idp) = (token.as_ref(), idp.as_ref());
        (*id, username.as_str(), *role, token, *rate_limit, allow_list.entries(), *is_disabled, idp)
    }
    users.iter().map(show).collect()
}

#[tokio::test]
async fn users_come_back_after_every_kind_of_change() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("toolgate.db");
    let store = open(&path).await.unwrap();
    let (admin, mut bob) = (user("admin", "12345678"), user("bob", "abcdefgh"));
    assert!(store.initialize(Mode::Enterprise, &admin, 1, &noted()).await.unwrap());
    assert_eq!(store.mode().await.unwrap().as_deref(), Some("enterprise"));
    let second = user("admin", "87654321");
    assert!(!store.initialize(Mode::Enterprise, &second, 2, &noted()).await.unwrap());
    assert!(store.health().borrow().is_ok(), "nothing failed");
    assert_eq!(shown(&store.load_users().await.unwrap()), shown(std::slice::from_ref(&admin)));
    store.put_user(&bob, 2, &noted()).await.unwrap();
    let before = bob.username.clone();
    bob = User { id: bob.id, role: Role::User, rate_limit: Some(LIMIT), ..user("álvaro", "ijklmnop") };
    store.change_user(&before, &bob, 3, &noted()).await.unwrap();
    store.close().await;
    let store = open(&path).await.unwrap();
    assert_eq!(shown(&store.load_users().await.unwrap()), shown(&[admin.clone(), bob.clone()]));
    store.delete_user(&admin, 3, &noted()).await.unwrap();
    bob.rate_limit = None;
    bob.allow_list = AllowList::new(vec!["b".into(), "!b__x".into()]);
    bob.is_disabled = true;
    store.put_user(&bob, 4, &noted()).await.unwrap();
    assert_eq!(shown(&store.load_users().await.unwrap()), shown(&[bob]));
}

#[tokio::test]
async fn people_of_an_identity_provider_come_back_and_have_no_token() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path().join("toolgate.db")).await.unwrap();
    let account = |subject: &str| IdpAccount {
        issuer: "https://idp.example".into(),
        subject: subject.into(),
        groups: vec!["eng".into(), "/a b".into()],
    };
    let of_idp = |name: &str, subject: &str| User {
        token: None,
        allow_list: AllowList::default(),
        idp: Some(account(subject)),
        ..user(name, "12345678")
    };
    let (local, mut ann) = (user("bob", "abcdefgh"), of_idp("ann", "1"));
    store.put_user(&local, 1, &noted()).await.unwrap();
    store.put_user(&ann, 1, &noted()).await.unwrap();
    // Somebody is one user, whatever the name.
    assert!(store.put_user(&of_idp("anna", "1"), 2, &noted()).await.is_err());
    let before = ann.username.clone();
    ann = User { id: ann.id, is_disabled: true, rate_limit: Some(LIMIT), ..of_idp("anna", "1") };
    store.change_user(&before, &ann, 3, &noted()).await.unwrap();
    assert_eq!(shown(&store.load_users().await.unwrap()), shown(&[local.clone(), ann.clone()]));
    store.put_last_seen(&[(local.id, 7), (ann.id, 8), (PrincipalId(1), 9)]).await.unwrap();
    store.put_last_seen(&[(ann.id, 5)]).await.unwrap();
    assert_eq!(store.load_last_seen().await.unwrap(), [(local.id, 7), (ann.id, 8)]);
    store.delete_user(&ann, 4, &noted()).await.unwrap();
    assert_eq!(shown(&store.load_users().await.unwrap()), shown(&[local]));
}

#[tokio::test]
async fn the_rules_of_groups_of_an_identity_provider_come_back() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path().join("toolgate.db")).await.unwrap();
    let body = json!({"role": "admin", "allow_list": ["!x", "*"], "rate_limit": {"calls_per_minute": 3}});
    let group = |name: &str| IdpGroup::parse(name, body.as_object().unwrap().clone()).unwrap();
    store.put_idp_group(&group("eng"), 1, &noted()).await.unwrap();
    store.put_idp_group(&IdpGroup::parse("eng", serde_json::Map::new()).unwrap(), 2, &noted()).await.unwrap();
    store.put_idp_group(&group("*"), 3, &noted()).await.unwrap();
    let expected = [group("*"), IdpGroup::parse("eng", serde_json::Map::new()).unwrap()];
    assert_eq!(store.load_idp_groups().await.unwrap(), expected);
    store.delete_idp_group("*", &noted()).await.unwrap();
    assert_eq!(store.load_idp_groups().await.unwrap(), expected[1..]);
}

#[tokio::test]
async fn clients_come_back_with_their_allow_lists_as_written() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("toolgate.db");
    let store = open(&path).await.unwrap();
    let first = client("agent", "12345678");
    store.put_client(&Client { rate_limit: Some(LIMIT), ..first.clone() }, 1, &noted()).await.unwrap();
    store.put_client(&client("other", "abcdefgh"), 1, &noted()).await.unwrap();
    store.close().await;
    let store = open(&path).await.unwrap();
    store.delete_client(&HolderName::parse("other").unwrap(), 3, &noted()).await.unwrap();
    let clients = store.load_clients().await.unwrap();
    let [agent] = clients.as_slice() else { panic!("{clients:?}") };
    assert_eq!((agent.name.as_str(), agent.description.as_str()), ("agent", "d"));
    assert_eq!(agent.allow_list.entries(), ["b", "*", "a"]);
    assert_eq!((agent.token.id(), agent.is_custom_token), (first.token.id(), true));
    assert_eq!(agent.rate_limit, Some(LIMIT));
    store.put_client(&first, 4, &noted()).await.unwrap();
    assert_eq!(store.load_clients().await.unwrap(), std::slice::from_ref(&first));
    assert_eq!(store.token_hash(b"12345678"), store.token_hash(agent.token.secret().expose().as_bytes()));
}

#[tokio::test]
async fn the_hash_of_a_token_is_kept_for_a_day_after_its_end() {
    const DAY: i64 = 24 * 60 * 60 * 1000;
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path().join("toolgate.db")).await.unwrap();
    let retired = async |now| {
        let mut times = store.load(now).await.unwrap().retired_tokens;
        times.sort_by_key(|(_, at)| *at);
        times
    };
    let (ada, agent) = (user("ada", "ada-1-token"), client("agent", "agent-1-token"));
    store.put_user(&ada, 1, &noted()).await.unwrap();
    store.put_client(&agent, 2, &noted()).await.unwrap();
    // A change that keeps the token.
    store.put_user(&User { role: Role::User, ..ada.clone() }, 3, &noted()).await.unwrap();
    assert_eq!(retired(3).await, []);
    store.put_client(&client("agent", "agent-2-token"), 10, &noted()).await.unwrap();
    store.change_user(&ada.username, &user("bob", "ada-2-token"), 20, &noted()).await.unwrap();
    store.delete_client(&agent.name, 30, &noted()).await.unwrap();
    let hash = |token: &str| store.token_hash(token.as_bytes());
    let expected = [(hash("agent-1-token"), 10), (hash("ada-1-token"), 20), (hash("agent-2-token"), 30)];
    assert_eq!(retired(30).await, expected);
    assert_eq!(retired(DAY + 10).await, expected[1..]);
    assert!(Store::is_remembered(10, DAY + 9) && !Store::is_remembered(10, DAY + 10));
    // The next end of a token removes the hashes that are too old.
    store.delete_user(&user("bob", "ada-2-token"), DAY + 20, &noted()).await.unwrap();
    assert_eq!(retired(0).await, [expected[2], (hash("ada-2-token"), DAY + 20)]);
}

#[tokio::test]
async fn a_token_that_was_moved_to_somebody_else_is_noticed() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path().join("toolgate.db")).await.unwrap();
    store.put_user(&user("ada", "12345678"), 1, &noted()).await.unwrap();
    store.put_user(&user("bob", "abcdefgh"), 1, &noted()).await.unwrap();
    const MOVE: &str = "UPDATE users SET token = (SELECT token FROM users WHERE username = 'ada')
        WHERE username = 'bob'";
    let mut tx = store.write().await.unwrap();
    on!(&mut tx, |db| sqlx::query(MOVE).execute(db).await.map(|_| ())).unwrap();
    tx.commit().await.unwrap();
    let error = store.load_users().await.unwrap_err();
    assert!(matches!(&error, StoreError::Corrupt(what) if what.contains("bob")), "{error}");
}
