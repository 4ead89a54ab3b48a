//! Which gateway on a shared database reads the lists of a server, and which one runs its processes.

/// Which gateway reads the lists of a server: only one of those on the same database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading {
    /// This one, which also stays connected.
    Here,
    /// Another one; this one connects when a caller needs the server.
    Elsewhere,
    /// Another one, which alone runs the processes of the server; this one connects through it when a caller needs the
    /// server. `None` while it is not known which one that is.
    Through(Option<u16>),
}

/// Why links end when the processes of their server run on another gateway from now on.
pub(super) const MOVED: &str = "the server runs on another gateway now";

impl Reading {
    /// Whether links that were opened before a change of this to `now` must end: the processes run on another gateway then.
    pub fn moves_to(self, now: Reading) -> bool {
        let is_through = |reading| matches!(reading, Reading::Through(_));
        self != now && (is_through(self) || is_through(now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_stay_where_every_gateway_runs_its_own_processes() {
        assert!(!Reading::Here.moves_to(Reading::Elsewhere) && !Reading::Elsewhere.moves_to(Reading::Here));
        for (before, now) in [
            (Reading::Here, Reading::Through(Some(1))),
            (Reading::Through(Some(1)), Reading::Through(Some(2))),
            (Reading::Through(Some(1)), Reading::Through(None)),
            (Reading::Through(None), Reading::Here),
        ] {
            assert!(before.moves_to(now) && !before.moves_to(before) && !now.moves_to(now));
        }
    }
}
