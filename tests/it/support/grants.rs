//! Grants as the authorization server makes them, without its pages: a person agrees, and software redeems the code.

use gateway::sign_in::{Approval, IssuedTokens};
use model::{By, PrincipalId, Reach};

use super::TestApp;

pub const CLIENT_ID: &str = "https://agent.example/oauth";
pub const REDIRECT: &str = "https://agent.example/callback";

pub fn by() -> By {
    By::anonymous(Some("192.0.2.1".to_owned()))
}

pub fn user_id(app: &TestApp, username: &str) -> PrincipalId {
    app.gateway().user(username).unwrap().id
}

/// What a user agrees to; the reach is the path of an endpoint, or empty for all of them.
pub fn approval(app: &TestApp, username: &str, reach: &str) -> Approval {
    Approval {
        user: user_id(app, username),
        client_id: CLIENT_ID.to_owned(),
        client_name: "Agent".to_owned(),
        software: r#"{"planted":"software"}"#.to_owned(),
        redirect_uri: REDIRECT.to_owned(),
        reach: Reach::parse(reach),
        code_challenge: "challenge".to_owned(),
        remember: true,
    }
}

/// Gives software a grant.
pub async fn grant(app: &TestApp, username: &str, reach: &str) -> IssuedTokens {
    let code = app.gateway().approve(approval(app, username, reach), &by()).await.unwrap();
    app.gateway().redeem(code.expose(), None, &by()).await.unwrap()
}
