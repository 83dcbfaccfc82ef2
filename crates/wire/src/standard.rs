//! The standard services of gRPC that the node port answers: health, and reflection over the
//! protobuf files of this crate. A stock client needs nothing of Muster for them (SYN-1).

use std::collections::BTreeSet;

use prost::Message;
use prost_types::{DescriptorProto, FileDescriptorProto, FileDescriptorSet};

use crate::generated::grpc_health_v1 as health;
use crate::generated::grpc_reflection_v1 as reflection;
use crate::generated::grpc_reflection_v1::server_reflection_request::MessageRequest;
use crate::generated::grpc_reflection_v1::server_reflection_response::MessageResponse;
use crate::{Problem, rpc};

/// Every protobuf file that the services use, as a `FileDescriptorSet`.
const DESCRIPTORS: &[u8] = include_bytes!("generated/descriptors.bin");

/// Whether a service can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Serving {
    /// It can.
    Serving,
    /// It is there and cannot be used now.
    NotServing,
    /// There is no such service.
    Unknown,
}

/// Reads a health request: the name of the service, empty for the whole server.
///
/// # Errors
/// A problem when it is not such a message.
pub fn read_health_request(bytes: &[u8]) -> Result<String, Problem> {
    rpc::read::<health::HealthCheckRequest>(bytes).map(|request| request.service)
}

/// Writes the answer to a health request.
pub fn health_response(serving: Serving) -> Vec<u8> {
    use health::health_check_response::ServingStatus;
    let status = match serving {
        Serving::Serving => ServingStatus::Serving,
        Serving::NotServing => ServingStatus::NotServing,
        Serving::Unknown => ServingStatus::ServiceUnknown,
    };
    health::HealthCheckResponse { status: status.into() }.encode_to_vec()
}

/// The protobuf files, read, to answer reflection with.
#[derive(Debug)]
pub struct Descriptors(Vec<FileDescriptorProto>);

/// What gRPC calls an answer that there is no such thing.
const NOT_FOUND: i32 = 5;
/// The same for a question that is not answered.
const UNIMPLEMENTED: i32 = 12;

impl Descriptors {
    /// Reads the files that were built in.
    ///
    /// # Errors
    /// A problem when they are damaged; a test holds that they are not.
    pub fn built_in() -> Result<Descriptors, Problem> {
        rpc::read::<FileDescriptorSet>(DESCRIPTORS).map(|set| Descriptors(set.file))
    }

    /// The full names of all services.
    pub fn services(&self) -> Vec<String> {
        let names = |file: &FileDescriptorProto| {
            let package = file.package().to_owned();
            let of = |service: &prost_types::ServiceDescriptorProto| format!("{package}.{}", service.name());
            file.service.iter().map(of).collect::<Vec<_>>()
        };
        self.0.iter().flat_map(names).collect()
    }

    /// Answers one question of reflection.
    ///
    /// # Errors
    /// A problem when it is not such a message.
    pub fn answer(&self, request: &[u8]) -> Result<Vec<u8>, Problem> {
        let request: reflection::ServerReflectionRequest = rpc::read(request)?;
        let found = match &request.message_request {
            Some(MessageRequest::ListServices(_)) => {
                let service = |name| reflection::ServiceResponse { name };
                let service = self.services().into_iter().map(service).collect();
                MessageResponse::ListServicesResponse(reflection::ListServiceResponse { service })
            }
            Some(MessageRequest::FileByFilename(name)) => self.files(|file| file.name() == name),
            Some(MessageRequest::FileContainingSymbol(symbol)) => self.files(|file| defines(file, symbol)),
            Some(
                MessageRequest::FileContainingExtension(_) | MessageRequest::AllExtensionNumbersOfType(_),
            )
            | None => failed(UNIMPLEMENTED, "there are no extensions"),
        };
        let response = reflection::ServerReflectionResponse {
            valid_host: request.host.clone(),
            original_request: Some(request),
            message_response: Some(found),
        };
        Ok(response.encode_to_vec())
    }

    /// The file that is meant, and those that it imports, itself first.
    fn files(&self, is_meant: impl Fn(&FileDescriptorProto) -> bool) -> MessageResponse {
        let Some(first) = self.0.iter().find(|file| is_meant(file)) else {
            return failed(NOT_FOUND, "no file has it");
        };
        let (mut found, mut seen) = (vec![first], BTreeSet::from([first.name()]));
        let mut at = 0;
        while let Some(file) = found.get(at) {
            for import in &file.dependency {
                let imported = self.0.iter().find(|file| file.name() == import);
                if let Some(imported) = imported.filter(|file| seen.insert(file.name())) {
                    found.push(imported);
                }
            }
            at += 1;
        }
        let file_descriptor_proto = found.into_iter().map(Message::encode_to_vec).collect();
        MessageResponse::FileDescriptorResponse(reflection::FileDescriptorResponse { file_descriptor_proto })
    }
}

fn failed(error_code: i32, message: &str) -> MessageResponse {
    MessageResponse::ErrorResponse(reflection::ErrorResponse {
        error_code,
        error_message: message.to_owned(),
    })
}

/// Whether a file defines a message, enum, service or method of this full name.
fn defines(file: &FileDescriptorProto, symbol: &str) -> bool {
    let Some(rest) = symbol.strip_prefix(file.package()).and_then(|rest| rest.strip_prefix('.')) else {
        return false;
    };
    let of_service = file.service.iter().any(|service| {
        rest == service.name()
            || rest
                .strip_prefix(service.name())
                .and_then(|rest| rest.strip_prefix('.'))
                .is_some_and(|name| service.method.iter().any(|method| method.name() == name))
    });
    let of_message = file.message_type.iter().any(|message| names(message, rest));
    of_service || of_message || file.enum_type.iter().any(|one| one.name() == rest)
}

/// Whether a message has this name, or holds the one that does.
fn names(message: &DescriptorProto, name: &str) -> bool {
    let Some(rest) = name.strip_prefix(message.name()) else { return false };
    if rest.is_empty() {
        return true;
    }
    let Some(rest) = rest.strip_prefix('.') else { return false };
    message.nested_type.iter().any(|nested| names(nested, rest))
        || message.enum_type.iter().any(|one| one.name() == rest)
}
