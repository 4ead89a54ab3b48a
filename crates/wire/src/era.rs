//! Protocol revisions and the two eras they fall into.

use std::fmt;

/// Legacy revisions have a handshake and sessions; in modern ones each request is independent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Era {
    Legacy,
    Modern,
}

/// A protocol revision; older ones are smaller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    V2024_11_05,
    V2025_03_26,
    V2025_06_18,
    V2025_11_25,
    V2026_07_28,
}

impl Version {
    pub const LATEST_LEGACY: Self = Self::V2025_11_25;
    pub const MODERN: Self = Self::V2026_07_28;
    pub const SUPPORTED: [Self; 5] =
        [Self::V2024_11_05, Self::V2025_03_26, Self::V2025_06_18, Self::V2025_11_25, Self::V2026_07_28];

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V2024_11_05 => "2024-11-05",
            Self::V2025_03_26 => "2025-03-26",
            Self::V2025_06_18 => "2025-06-18",
            Self::V2025_11_25 => "2025-11-25",
            Self::V2026_07_28 => "2026-07-28",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        Self::SUPPORTED.into_iter().find(|version| version.as_str() == text)
    }

    pub const fn era(self) -> Era {
        match self {
            Self::V2024_11_05 | Self::V2025_03_26 | Self::V2025_06_18 | Self::V2025_11_25 => Era::Legacy,
            Self::V2026_07_28 => Era::Modern,
        }
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_read_back_and_only_the_last_is_modern() {
        for version in Version::SUPPORTED {
            assert_eq!(Version::parse(version.as_str()), Some(version));
            assert_eq!(version.era() == Era::Modern, version == Version::MODERN);
        }
        assert_eq!(Version::parse("2025-11-26"), None);
    }
}
