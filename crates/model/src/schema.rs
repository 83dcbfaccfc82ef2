//! JSON Schema of the types whose JSON is a text.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};

macro_rules! texts {
    ($($type:ty: $name:literal $pattern:literal)*) => {$(
        impl JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> {
                $name.into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                json_schema!({ "type": "string", "pattern": $pattern })
            }
        }
    )*};
}

texts! {
    crate::Digest: "Digest" "^[0-9a-f]{64}$"
    crate::ObjectKey: "ObjectKey" "^[^/]+/[^/]*/[\\s\\S]+$"
    crate::Timestamp: "Timestamp" "^-?[0-9]{4,6}-[0-9]{2}-[0-9]{2}T[0-9:.]+Z$"
    crate::Hostname: "Hostname" "^[a-z0-9.-]{1,253}$"
    crate::FleetId: "FleetId" "^[a-z0-9][a-z0-9_-]{0,99}$"
    crate::Channel: "Channel" "^[a-z0-9][a-z0-9_-]{0,99}$"
    crate::Incarnation: "Incarnation" "^[a-z0-9][a-z0-9_-]{0,99}$"
    crate::selection::Hashes: "Hashes" "^[A-Za-z0-9+/]*={0,2}$"
    crate::NodeId: "NodeId" "^n-[0-9a-f]{32}$"
}
