//! The pages on which people sign in and agree. They say in plain words who asks, what proves it, where the answer goes, as
//! whom, and what the agent will reach.

use axum::http::StatusCode;

use super::authorize;
use super::html::{Html, Page};
use super::login;
use gateway::reached::Reached;
use model::Reach;
use model::oauth::{RedirectUri, Software, SoftwareOrigin};

/// How people sign in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SignInWay {
    /// With the token that an admin gave them.
    Token,
    /// At the identity provider on this host.
    Provider(String),
}

/// The agent for which somebody signs in.
pub struct AskingAgent<'a> {
    pub software: &'a Software,
    pub redirect_uri: &'a RedirectUri,
}

/// The page to sign in.
pub fn sign_in(
    way: &SignInWay,
    agent: Option<&AskingAgent<'_>>,
    next: Option<&str>,
    problem: Option<&str>,
) -> Page {
    let mut content = Html::new();
    if let Some(agent) = agent {
        content = content
            .raw("<p><strong>")
            .text(&agent.software.name)
            .raw("</strong> wants to use the tools of this gateway for you. You decide after you have signed in.</p>\n<dl>\n")
            .fact("Who asks", who_asks(agent))
            .fact("Where the answer goes", where_to(agent.redirect_uri))
            .raw("</dl>\n");
    }
    if let Some(problem) = problem {
        content = content.part(alert(problem));
    }
    content = content.raw("<form method=\"post\" action=\"").raw(login::PATH).raw("\">\n");
    if let Some(next) = next {
        content = content.hidden("next", next);
    }
    content = match way {
        SignInWay::Token => content
            .raw("<label for=\"token\">Your access token</label>\n")
            .raw("<input id=\"token\" name=\"token\" type=\"password\" required autofocus autocomplete=\"current-password\">\n")
            .raw("<div class=\"buttons\"><button class=\"main\">Sign in</button></div>\n</form>\n")
            .raw("<p class=\"last\">An admin of this gateway gave you the token. Nobody else should know it.</p>\n"),
        SignInWay::Provider(host) => content
            .raw("<div class=\"buttons\"><button class=\"main\">Sign in with ")
            .text(host)
            .raw("</button></div>\n</form>\n"),
    };
    Page::ok("Sign in", content)
}

/// What the consent page needs.
pub struct Consent<'a> {
    pub agent: AskingAgent<'a>,
    pub username: &'a str,
    pub reach: &'a Reach,
    /// The MCP endpoint, or all of them, as a URL.
    pub endpoint: &'a str,
    pub reached: Reached,
    /// The query of the request, which is sent again with the answer.
    pub query: &'a str,
    /// Against forged answers.
    pub form_token: &'a str,
}

/// The page that asks for consent.
pub fn consent(consent: &Consent<'_>) -> Page {
    let Consent { agent, username, reach, endpoint, reached, query, form_token } = consent;
    let whom = Html::new()
        .raw("<strong>")
        .text(username)
        .raw("</strong>\n<form class=\"inline\" method=\"post\" action=\"")
        .raw(login::LOGOUT)
        .raw("\">")
        .hidden("next", &format!("{}?{query}", authorize::PATH))
        .raw("<button class=\"link\">Not you? Sign out</button></form>");
    let mut content = Html::new();
    if let Some(warning) = warning(agent) {
        content = content.raw("<p class=\"note\">").text(&warning).raw("</p>\n");
    }
    content = content
        .raw("<dl>\n")
        .fact("Who asks", who_asks(agent))
        .fact("Where the answer goes", where_to(agent.redirect_uri))
        .fact("As whom", whom)
        .fact("What it will reach", what(reach, endpoint, reached))
        .raw("</dl>\n<form method=\"post\" action=\"")
        .raw(authorize::PATH)
        .raw("\">\n")
        .hidden("query", query)
        .hidden("form_token", form_token)
        .raw("<div class=\"buttons\">\n")
        .raw("<button class=\"main\" name=\"decision\" value=\"allow\">Allow</button>\n")
        .raw("<button name=\"decision\" value=\"deny\">Deny</button>\n</div>\n</form>\n");
    if agent.redirect_uri.is_https() {
        content = content.raw("<p class=\"last\">If you allow it, you are not asked again for this.</p>\n");
    }
    Page::ok(format!("Allow {} to use your tools?", agent.software.name), content)
}

fn who_asks(agent: &AskingAgent<'_>) -> Html {
    let proof = match (agent.software.origin, agent.software.proven_host()) {
        (SoftwareOrigin::Admin, _) => "An admin of this gateway has registered it.".to_owned(),
        (SoftwareOrigin::Document, Some(host)) if agent.redirect_uri.is_https() => {
            format!("Proven by {host}.")
        }
        (SoftwareOrigin::Document, Some(host)) => format!("Described by {host}, but not proven."),
        (SoftwareOrigin::Document | SoftwareOrigin::Registration, _) => {
            "It chose this name itself. Nothing proves it.".to_owned()
        }
    };
    Html::new()
        .raw("<strong>")
        .text(&agent.software.name)
        .raw("</strong><small>")
        .text(&proof)
        .raw("</small>")
}

/// What a person should check before they agree.
fn warning(agent: &AskingAgent<'_>) -> Option<String> {
    let name = &agent.software.name;
    if !agent.redirect_uri.is_https() {
        return Some(format!(
            "A program on your computer asks, and any program there can call itself “{name}”. Allow this only if you \
             have just started to connect it yourself."
        ));
    }
    (agent.software.origin == SoftwareOrigin::Registration).then(|| {
        format!(
            "Anybody can choose the name “{name}”. Allow this only if you have just started to connect it yourself, \
             and trust {}.",
            agent.redirect_uri.shown()
        )
    })
}

fn where_to(redirect_uri: &RedirectUri) -> Html {
    Html::new()
        .raw("To ")
        .text(&redirect_uri.shown())
        .raw("<small><code>")
        .text(redirect_uri.as_str())
        .raw("</code></small>")
}

fn what(reach: &Reach, endpoint: &str, reached: &Reached) -> Html {
    let html = match reach {
        Reach::Everything => {
            Html::new().raw("Everything that you may use on this gateway, <code>").text(endpoint)
        }
        Reach::Endpoint(_) => Html::new().raw("Only <code>").text(endpoint),
    };
    let plural = |count: usize, noun: &str| format!("{count} {noun}{}", if count == 1 { "" } else { "s" });
    let counts = format!(
        "Now {} with {}. What you may use later is included.",
        plural(reached.servers, "server"),
        plural(reached.tools, "tool")
    );
    html.raw("</code><small>").text(&counts).raw("</small>")
}

/// The page for a problem. `back` leads to the agent, with the error.
pub fn problem(status: StatusCode, sentence: &str, back: Option<&str>) -> Page {
    let content = match back {
        Some(back) => alert(sentence)
            .raw("<p><a rel=\"noreferrer\" href=\"")
            .text(back)
            .raw("\">Go back to the program that sent you here</a></p>\n"),
        None => alert(sentence)
            .raw("<p>Close this page, and begin again in the program that sent you here.</p>\n"),
    };
    Page { status, title: "This did not work".to_owned(), content }
}

/// The page for a sign-in that failed. `again` is where another attempt begins.
pub fn sign_in_failed(status: StatusCode, sentence: &str, again: &str) -> Page {
    let content = alert(sentence).raw("<p><a href=\"").text(again).raw("\">Try again</a></p>\n");
    Page { status, title: "You are not signed in".to_owned(), content }
}

/// The page for a decision in an earlier session: the person has signed in again, perhaps for another agent. `again` leads to
/// the page that asks for it.
pub fn outdated(again: &str) -> Page {
    let sentence = "Nothing was allowed, because you have signed in again since you were asked.";
    let content =
        alert(sentence).raw("<p><a href=\"").text(again).raw("\">Show the question again</a></p>\n");
    Page { status: StatusCode::FORBIDDEN, title: "Decide again".to_owned(), content }
}

/// A problem as a sentence: errors of the gateway begin with a small letter and have no full stop.
fn alert(problem: &str) -> Html {
    let mut letters = problem.chars();
    let first: String = letters.next().into_iter().flat_map(char::to_uppercase).collect();
    let stop = if problem.ends_with(['.', '?', '!']) { "" } else { "." };
    Html::new()
        .raw("<p class=\"note bad\" role=\"alert\">")
        .text(&format!("{first}{}", letters.as_str()))
        .raw(stop)
        .raw("</p>\n")
}

/// The page of somebody who is signed in.
pub fn signed_in(username: &str) -> Page {
    let content = Html::new()
        .raw("<p>You are signed in as <strong>")
        .text(username)
        .raw("</strong>. You can close this page.</p>\n<form method=\"post\" action=\"")
        .raw(login::LOGOUT)
        .raw("\"><div class=\"buttons\"><button>Sign out</button></div></form>\n");
    Page::ok("Signed in", content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_shown_as_a_sentence() {
        let shown = |problem: &str| {
            let html = alert(problem);
            html.as_str().strip_suffix("</p>\n").unwrap().split_once('>').unwrap().1.to_owned()
        };
        assert_eq!(shown("your account is in no group; ask"), "Your account is in no group; ask.");
        assert_eq!(shown("This token is not valid."), "This token is not valid.");
        assert_eq!(shown("\u{e9}t\u{e9} <b>"), "\u{c9}t\u{e9} &lt;b&gt;.");
    }
}
