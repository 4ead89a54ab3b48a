//! In-memory stores for rmcp's OAuth client: filled before a step and read after it, so that the gateway alone decides
//! what is stored and when.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use rmcp::transport::auth::{
    AuthError, CredentialStore, StateStore, StoredAuthorizationState, StoredCredentials,
};

#[derive(Clone)]
pub struct Memory<T>(Arc<Mutex<Option<T>>>);

impl<T: Clone> Memory<T> {
    pub fn of(content: Option<T>) -> Self {
        Self(Arc::new(Mutex::new(content)))
    }

    pub fn content(&self) -> Option<T> {
        self.0.lock().expect("no code panics while it holds the memory").clone()
    }

    fn set(&self, content: Option<T>) {
        *self.0.lock().expect("no code panics while it holds the memory") = content;
    }
}

#[async_trait]
impl CredentialStore for Memory<StoredCredentials> {
    async fn load(&self) -> Result<Option<StoredCredentials>, AuthError> {
        Ok(self.content())
    }

    async fn save(&self, credentials: StoredCredentials) -> Result<(), AuthError> {
        self.set(Some(credentials));
        Ok(())
    }

    async fn clear(&self) -> Result<(), AuthError> {
        self.set(None);
        Ok(())
    }
}

#[async_trait]
impl StateStore for Memory<StoredAuthorizationState> {
    async fn save(&self, _: &str, state: StoredAuthorizationState) -> Result<(), AuthError> {
        self.set(Some(state));
        Ok(())
    }

    async fn load(&self, csrf_token: &str) -> Result<Option<StoredAuthorizationState>, AuthError> {
        Ok(self.content().filter(|state| state.csrf_token == csrf_token))
    }

    async fn delete(&self, _: &str) -> Result<(), AuthError> {
        self.set(None);
        Ok(())
    }
}
