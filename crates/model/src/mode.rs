//! The two modes of the gateway: open, for one's own machine, or with access control, for a company.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Development,
    Enterprise,
}

impl Mode {
    /// Parses a mode, ignoring case; `production` is an alias of `enterprise`.
    pub fn parse(text: &str) -> Option<Self> {
        match text.to_ascii_lowercase().as_str() {
            "development" => Some(Mode::Development),
            "enterprise" | "production" => Some(Mode::Enterprise),
            _ => None,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Mode::Development => "development",
            Mode::Enterprise => "enterprise",
        }
    }
}
