//! [`Certificate`]: what is read of an X.509 certificate here, whose names and whose key it is and how long it holds.
//!
//! Whether it may be believed is webpki's to say. Of the extensions only the names are read: a parser of all of them is
//! large, and the agent is to stay small.

use x509_parser::asn1_rs::{Any, Class, Tag};
use x509_parser::oid_registry::OID_X509_EXT_SUBJECT_ALT_NAME;
use x509_parser::prelude::{
    FromDer, GeneralName, SubjectAlternativeName, SubjectPublicKeyInfo, Validity, X509Name,
};

/// The tag of the version, of the extensions, among the fields of a certificate.
const VERSION: u32 = 0;
const EXTENSIONS: u32 = 3;

/// A certificate's names, validity and key.
pub(crate) struct Certificate<'a> {
    pub(crate) issuer: X509Name<'a>,
    pub(crate) validity: Validity,
    pub(crate) subject: X509Name<'a>,
    pub(crate) key: SubjectPublicKeyInfo<'a>,
    /// What follows the key: two ids that nobody uses, and the extensions.
    rest: &'a [u8],
}

impl<'a> Certificate<'a> {
    /// Reads a certificate; `None` when it is none.
    pub(crate) fn read(der: &'a [u8]) -> Option<Certificate<'a>> {
        let (_, all) = sequence(der)?;
        let (_, fields) = sequence(all)?;
        let (after_version, version) = Any::from_der(fields).ok()?;
        let fields = if is_tagged(&version, VERSION) { after_version } else { fields };
        let (fields, serial) = Any::from_der(fields).ok()?;
        serial.tag().assert_eq(Tag::Integer).ok()?;
        let (fields, _algorithm) = sequence(fields)?;
        let (fields, issuer) = X509Name::from_der(fields).ok()?;
        let (fields, validity) = Validity::from_der(fields).ok()?;
        let (fields, subject) = X509Name::from_der(fields).ok()?;
        let (rest, key) = SubjectPublicKeyInfo::from_der(fields).ok()?;
        Some(Certificate { issuer, validity, subject, key, rest })
    }

    /// The URIs among its names; `None` when its extensions cannot be read, or say its names twice.
    pub(crate) fn uris(&self) -> Option<Vec<&'a str>> {
        let Some(names) = self.names()? else { return Some(Vec::new()) };
        let (_, names) = SubjectAlternativeName::from_der(names).ok()?;
        let uris = names.general_names.into_iter().filter_map(|name| match name {
            GeneralName::URI(uri) => Some(uri),
            _ => None,
        });
        Some(uris.collect())
    }

    /// The extension with its names, where it has one.
    fn names(&self) -> Option<Option<&'a [u8]>> {
        let mut rest = self.rest;
        while !rest.is_empty() {
            let (after, field) = Any::from_der(rest).ok()?;
            rest = after;
            if is_tagged(&field, EXTENSIONS) {
                return names_among(sequence(field.data)?.1);
            }
        }
        Some(None)
    }
}

fn names_among(mut extensions: &[u8]) -> Option<Option<&[u8]>> {
    let mut names = None;
    while !extensions.is_empty() {
        let (after, extension) = sequence(extensions)?;
        extensions = after;
        let (value, id) = Any::from_der(extension).ok()?;
        // Between the two may stand whether it is critical.
        let (after_value, mut value) = Any::from_der(value).ok()?;
        if value.tag() == Tag::Boolean {
            value = Any::from_der(after_value).ok()?.1;
        }
        value.tag().assert_eq(Tag::OctetString).ok()?;
        let is_names = id.as_oid().ok()? == OID_X509_EXT_SUBJECT_ALT_NAME;
        if is_names && names.replace(value.data).is_some() {
            return None;
        }
    }
    Some(names)
}

/// What follows a sequence, and what is in it.
fn sequence(der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (after, any) = Any::from_der(der).ok()?;
    (any.class() == Class::Universal && any.tag() == Tag::Sequence).then_some((after, any.data))
}

fn is_tagged(field: &Any<'_>, number: u32) -> bool {
    field.class() == Class::ContextSpecific && field.tag() == Tag(number)
}
