//! Tests of what is kept of sign-ins at the identity provider.

use super::open;
use crate::db::on;
use crate::{IdpSignIn, Store};
use model::{PrincipalId, Secret};

const ANN: PrincipalId = PrincipalId(7);

async fn only(store: &Store) -> IdpSignIn {
    let mut all = store.load_idp_sign_ins().await.unwrap();
    assert_eq!(all.len(), 1);
    all.remove(0)
}

fn token(of: &IdpSignIn) -> Option<&str> {
    of.refresh_token.as_ref().map(Secret::expose)
}

#[tokio::test]
async fn one_gateway_asks_and_a_later_sign_in_counts_more_than_its_answer() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path().join("toolgate.db")).await.unwrap();
    store.put_idp_sign_in(ANN, Some(&Secret::new("one")), 10).await.unwrap();
    let before = only(&store).await;
    assert!(store.take_idp_check(&before, 20).await.unwrap());
    assert!(!store.take_idp_check(&before, 21).await.unwrap(), "another gateway was faster");
    // An answer without a new token keeps the one before.
    assert!(store.note_idp_check(ANN, None, 20, 15).await.unwrap());
    assert_eq!((token(&only(&store).await), only(&store).await.checked_at_ms), (Some("one"), 15));
    assert!(store.note_idp_check(ANN, Some(&Secret::new("two")), 15, 20).await.unwrap());
    assert_eq!(token(&only(&store).await), Some("two"));
    // The person signs in while the identity provider is asked with the token of before.
    store.put_idp_sign_in(ANN, Some(&Secret::new("new")), 30).await.unwrap();
    assert!(!store.note_idp_check(ANN, Some(&Secret::new("old")), 20, 31).await.unwrap());
    store.forget_idp_sign_in(ANN, 20).await.unwrap();
    assert_eq!((token(&only(&store).await), only(&store).await.signed_in_at_ms), (Some("new"), 30));
    store.forget_idp_sign_in(ANN, 30).await.unwrap();
    assert!(store.load_idp_sign_ins().await.unwrap().is_empty());
}

#[tokio::test]
async fn a_token_that_cannot_be_read_counts_like_none_and_keeps_no_other_from_being_read() {
    const DAMAGE: &str = "UPDATE idp_tokens SET content = x'010203' WHERE user_id = 7";
    let directory = tempfile::tempdir().unwrap();
    let store = open(directory.path().join("toolgate.db")).await.unwrap();
    store.put_idp_sign_in(ANN, Some(&Secret::new("one")), 1).await.unwrap();
    store.put_idp_sign_in(PrincipalId(8), Some(&Secret::new("two")), 2).await.unwrap();
    let mut tx = store.read().await.unwrap();
    on!(&mut tx, |db| sqlx::query(DAMAGE).execute(db).await.map(|_| ())).unwrap();
    tx.commit().await.unwrap();
    let all = store.load_idp_sign_ins().await.unwrap();
    assert_eq!(all.iter().map(token).collect::<Vec<_>>(), [None, Some("two")]);
}
