use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;
use std::str::FromStr;

/// Bytes that are written as hexadecimal digits.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct HexBytes(pub Vec<u8>);

impl HexBytes {
    /// Whether all bytes are zero, which in evidence means that there is no value.
    pub fn is_zero(&self) -> bool {
        self.0.iter().all(|byte| *byte == 0)
    }
}

impl fmt::Display for HexBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(&self.0))
    }
}

impl fmt::Debug for HexBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for HexBytes {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let bytes = hex::decode(text);
        let reason = || format!("\"{text}\" is not hexadecimal, or has an odd number of digits");
        bytes.map(Self).map_err(|_| reason())
    }
}

impl Serialize for HexBytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for HexBytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comes_back_as_it_went() {
        let bytes: HexBytes = "00ffA5".parse().unwrap();
        assert_eq!((&bytes.0[..], bytes.to_string()), (&[0, 255, 0xa5][..], "00ffa5".into()));
        assert!("0".parse::<HexBytes>().unwrap_err().contains("odd"));
        assert!("0g".parse::<HexBytes>().unwrap_err().contains("not hexadecimal"));
        assert!("".parse::<HexBytes>().unwrap().is_zero());
        assert!(!bytes.is_zero());
    }
}
