//! Finds the software that a client id names: registered by an admin, described by a document, or sealed in the client id.

use std::net::IpAddr;

use super::AuthorizationServer;
use super::error::problem_of;
use crate::http::Face;
use crate::http::source_limit::source_of;
use model::oauth::{ClientUrl, OAuthProblem, Software};

impl AuthorizationServer {
    /// Finds software for a new authorization. The problem is for a page.
    pub async fn find_software(
        &self,
        face: &Face,
        client_id: &str,
        source: IpAddr,
    ) -> Result<Software, OAuthProblem> {
        if ClientUrl::is_meant(client_id) {
            return self.fetch_software(client_id, source).await;
        }
        if self.settings.has_registration
            && let Some(software) = self.open_client_id(client_id)
        {
            return Ok(software);
        }
        self.admins_software(face, client_id).await?.ok_or_else(|| {
            OAuthProblem::invalid_client(
                "This gateway does not know the program that sent you here (its client_id).",
            )
        })
    }

    /// Software that an admin has registered.
    pub async fn admins_software(
        &self,
        face: &Face,
        client_id: &str,
    ) -> Result<Option<Software>, OAuthProblem> {
        let found = face.gateway.oauth_client(client_id).await.map_err(|error| problem_of(&error))?;
        Ok(found.and_then(|json| Software::from_json(&json)))
    }

    async fn fetch_software(&self, client_id: &str, source: IpAddr) -> Result<Software, OAuthProblem> {
        let wrong = |problem: &str| {
            OAuthProblem::invalid_client(format!(
                "The program that sent you here has a wrong client_id: it {problem}."
            ))
        };
        let url = ClientUrl::parse(client_id).map_err(|problem| wrong(&problem))?;
        let rules = &self.settings.rules;
        if !rules.hosts.admit(url.host()) {
            return Err(wrong(&format!("is on {}, which OAUTH_CLIENT_HOSTS does not allow", url.host())));
        }
        let document = self.documents.fetch(url.url(), source_of(source)).await;
        let document = document.map_err(|problem| {
            OAuthProblem::invalid_client(format!(
                "The metadata document of the program that sent you here {problem}."
            ))
        })?;
        rules.read_document(&url, &document.body).map_err(|problem| {
            self.documents.forget(url.url());
            wrong(&format!("leads to a document that cannot be used: {problem}"))
        })
    }
}
