//! The kinds of bounds, and the error of a request that would exceed one.

/// What is bounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bound {
    /// The time to send the head of a request.
    HeadTime,
    /// The time to send the body of a request.
    BodyTime,
    /// The time without progress of a response that its client does not read.
    SendTime,
    BodySize,
    Connections,
    BufferedBytes,
    BatchMessages,
    BatchAnswer,
    UriLength,
    Subscriptions,
    Streams,
    Calls,
    WaitingCalls,
    /// The time that a call waits for a server with `max_concurrency`.
    WaitingTime,
    /// Calls waiting for input from their client.
    ParkedCalls,
    /// The time that a client has to answer a question of a server.
    AnswerTime,
    Processes,
    /// The size of a message of a server.
    MessageSize,
    /// The size and the number of what a server lists.
    Lists,
    WrongTokens,
    /// Registrations of OAuth clients from one address.
    Registrations,
    RateLimit,
}

impl Bound {
    pub const ALL: [Self; 22] = [
        Self::HeadTime,
        Self::BodyTime,
        Self::SendTime,
        Self::BodySize,
        Self::Connections,
        Self::BufferedBytes,
        Self::BatchMessages,
        Self::BatchAnswer,
        Self::UriLength,
        Self::Subscriptions,
        Self::Streams,
        Self::Calls,
        Self::WaitingCalls,
        Self::WaitingTime,
        Self::ParkedCalls,
        Self::AnswerTime,
        Self::Processes,
        Self::MessageSize,
        Self::Lists,
        Self::WrongTokens,
        Self::Registrations,
        Self::RateLimit,
    ];

    /// The name in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Bound::HeadTime => "head_time",
            Bound::BodyTime => "body_time",
            Bound::SendTime => "send_time",
            Bound::BodySize => "body_size",
            Bound::Connections => "connections",
            Bound::BufferedBytes => "buffered_bytes",
            Bound::BatchMessages => "batch_messages",
            Bound::BatchAnswer => "batch_answer",
            Bound::UriLength => "uri_length",
            Bound::Subscriptions => "subscriptions",
            Bound::Streams => "streams",
            Bound::Calls => "calls",
            Bound::WaitingCalls => "waiting_calls",
            Bound::WaitingTime => "waiting_time",
            Bound::ParkedCalls => "parked_calls",
            Bound::AnswerTime => "answer_time",
            Bound::Processes => "processes",
            Bound::MessageSize => "message_size",
            Bound::Lists => "lists",
            Bound::WrongTokens => "wrong_tokens",
            Bound::Registrations => "registrations",
            Bound::RateLimit => "rate_limit",
        }
    }

    /// What is bounded, in words for people.
    pub fn label(self) -> &'static str {
        match self {
            Bound::HeadTime => "Time to send the head of a request",
            Bound::BodyTime => "Time to send the body of a request",
            Bound::SendTime => "Time without reading, while a response is sent",
            Bound::BodySize => "Size of the body of a request",
            Bound::Connections => "Connections of clients",
            Bound::BufferedBytes => "Bytes in transit",
            Bound::BatchMessages => "Messages in a batch",
            Bound::BatchAnswer => "Size of the response to a batch",
            Bound::UriLength => "Length of a URI",
            Bound::Subscriptions => "Subscriptions to resources",
            Bound::Streams => "Open event streams",
            Bound::Calls => "Calls in flight",
            Bound::WaitingCalls => "Calls waiting for a server with max_concurrency",
            Bound::WaitingTime => "Time that a call waits for a server with max_concurrency",
            Bound::ParkedCalls => "Calls waiting for input from their client",
            Bound::AnswerTime => "Time for a client to answer a server's request for input",
            Bound::Processes => "Processes of servers",
            Bound::MessageSize => "Size of a message from a server",
            Bound::Lists => "Tools, prompts and resources that a server lists",
            Bound::WrongTokens => "Wrong tokens from one address",
            Bound::Registrations => "Registrations of OAuth clients from one address",
            Bound::RateLimit => "Calls per minute of a client, user, server or tool",
        }
    }

    /// The variable that sets the limit, or the key that sets it for one client, user or server. `None` if it is fixed.
    pub fn setting(self) -> Option<&'static str> {
        match self {
            Bound::Connections => Some("MAX_CONNECTIONS"),
            Bound::BufferedBytes => Some("MAX_BUFFERED_MB"),
            Bound::Streams => Some("MAX_STREAMS"),
            Bound::Calls => Some("MAX_CALLS"),
            Bound::AnswerTime => Some("PARK_TIMEOUT_SEC"),
            Bound::Processes => Some("MAX_PROCESSES"),
            Bound::MessageSize => Some("MAX_MESSAGE_MB"),
            Bound::RateLimit => Some("rate_limit"),
            Bound::HeadTime
            | Bound::BodyTime
            | Bound::SendTime
            | Bound::BodySize
            | Bound::BatchMessages
            | Bound::BatchAnswer
            | Bound::UriLength
            | Bound::Subscriptions
            | Bound::WaitingCalls
            | Bound::WaitingTime
            | Bound::ParkedCalls
            | Bound::Lists
            | Bound::WrongTokens
            | Bound::Registrations => None,
        }
    }
}

/// A request that would exceed a bound. The sentence names the limit and, if there is one, the variable that sets it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exceeded {
    pub bound: Bound,
    pub limit: u64,
}

impl std::error::Error for Exceeded {}

impl std::fmt::Display for Exceeded {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let limit = self.limit;
        let counted = |noun: &str, rest: &str| {
            let ending = if limit == 1 { "" } else { "s" };
            format!("{limit} {noun}{ending}{rest}")
        };
        match self.bound {
            Bound::HeadTime => write!(f, "the head of a request must arrive within {limit} seconds"),
            Bound::BodyTime => write!(f, "the body of a request must arrive within {limit} seconds"),
            Bound::SendTime => write!(f, "the client read nothing of the response for {limit} seconds"),
            Bound::BodySize => write!(f, "the body is larger than {limit} bytes"),
            Bound::Connections => {
                write!(f, "the limit of {} is reached (MAX_CONNECTIONS)", counted("connection", ""))
            }
            Bound::BufferedBytes => write!(
                f,
                "requests and responses in transit need more than {} MiB (MAX_BUFFERED_MB); try again later",
                limit / (1024 * 1024)
            ),
            Bound::BatchMessages => write!(f, "a batch may have at most {limit} messages"),
            Bound::BatchAnswer => write!(f, "the response to a batch may have at most {limit} bytes"),
            Bound::UriLength => write!(f, "a URI may have at most {limit} bytes"),
            Bound::Subscriptions => write!(f, "at most {limit} subscriptions are allowed"),
            Bound::Streams => {
                write!(
                    f,
                    "the limit of {} is reached (MAX_STREAMS); close one first",
                    counted("open event stream", "")
                )
            }
            Bound::Calls => {
                write!(
                    f,
                    "the limit of {} is reached (MAX_CALLS); try again later",
                    counted("call", " in flight")
                )
            }
            Bound::WaitingCalls => {
                write!(
                    f,
                    "{limit} calls are already waiting for this server (max_concurrency); try again later"
                )
            }
            Bound::WaitingTime => {
                write!(
                    f,
                    "no other call to this server ended within {limit} seconds (max_concurrency); try again later"
                )
            }
            Bound::ParkedCalls => write!(f, "{limit} calls are already waiting for input from their client"),
            Bound::AnswerTime => {
                write!(f, "the client did not answer the server within {limit} seconds (PARK_TIMEOUT_SEC)")
            }
            Bound::Processes => {
                write!(f, "the limit of server processes ({limit}) is reached; try again later")
            }
            Bound::MessageSize => write!(
                f,
                "the server sent a message larger than {} MiB (MAX_MESSAGE_MB)",
                limit / (1024 * 1024)
            ),
            Bound::Lists => write!(f, "a server may list at most {limit} items of a kind"),
            Bound::WrongTokens => f.write_str("too many wrong tokens from this address"),
            Bound::Registrations => f.write_str("too many registrations from this address; try again later"),
            Bound::RateLimit => {
                write!(f, "the limit of {} is reached; try again later", counted("call", " per minute"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_of_one_is_in_the_singular() {
        let sentence = |bound, limit| Exceeded { bound, limit }.to_string();
        let reached = "is reached; try again later";
        assert_eq!(sentence(Bound::RateLimit, 1), format!("the limit of 1 call per minute {reached}"));
        assert_eq!(sentence(Bound::RateLimit, 60), format!("the limit of 60 calls per minute {reached}"));
        assert!(sentence(Bound::Calls, 1).contains("1 call in flight is reached (MAX_CALLS)"));
        assert!(sentence(Bound::Streams, 1).contains("1 open event stream is reached (MAX_STREAMS)"));
    }

    #[test]
    fn a_sentence_names_the_variable_that_sets_the_limit() {
        for bound in Bound::ALL {
            let sentence = Exceeded { bound, limit: 1 }.to_string();
            let variable = bound.setting().filter(|setting| setting.starts_with("MAX_"));
            match variable {
                // The same sentence is for the processes of one server, whose limit is fixed.
                Some(_) if bound == Bound::Processes => {}
                Some(variable) => assert!(sentence.contains(variable), "{sentence}"),
                None => assert!(!sentence.contains("MAX_"), "{sentence}"),
            }
        }
    }
}
