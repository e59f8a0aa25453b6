#include "api/request_identity.hpp"

#include <absl/strings/ascii.h>
#include <absl/strings/escaping.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/message.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>

#include <array>
#include <boost/json.hpp>
#include <set>

#include "api/workspace_scope.hpp"
#include "datamodel.pb.h"
#include "openshell.pb.h"

namespace openshell::api {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

const std::set<std::string_view> kWithoutSecrets{"CreateWorkspace",       "DeleteWorkspace",       "AddWorkspaceMember",
                                                 "RemoveWorkspaceMember", "CreateSandboxTemplate", "DeleteSandboxTemplate"};
/// Without a workspace these work on the platform's profiles.
const std::set<std::string_view> kPlatformWithoutScope{"ImportProviderProfiles", "UpdateProviderProfiles", "DeleteProviderProfile"};

const FieldDescriptor* text_field(const Descriptor& type, const char* name) {
  const auto* field = type.FindFieldByName(name);
  const bool fits = field != nullptr && !field->is_repeated() && field->cpp_type() == FieldDescriptor::CPPTYPE_STRING;
  return fits ? field : nullptr;
}

std::string text_of(const Message& message, const char* name) {
  const auto* field = text_field(*message.GetDescriptor(), name);
  return field == nullptr ? std::string{} : message.GetReflection()->GetString(message, field);
}

const Descriptor* identified_type(const Descriptor& request) {
  if (text_field(request, "request_id") != nullptr) return &request;
  const auto* start = request.FindFieldByName("start");
  const bool inner = start != nullptr && start->message_type() != nullptr && text_field(*start->message_type(), "request_id") != nullptr;
  return inner ? start->message_type() : nullptr;
}

std::string sha256(std::string_view text) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest{};
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data());
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

std::string hash_of_list(std::initializer_list<std::string_view> values) {
  boost::json::array list;
  for (const auto value : values) list.emplace_back(boost::json::string{value.data(), value.size()});
  return absl::BytesToHexString(sha256(boost::json::serialize(list)));
}

}  // namespace

std::map<std::string, CoveredMethod, std::less<>> covered_methods() {
  std::map<std::string, CoveredMethod, std::less<>> out;
  const auto* service = openshell::v1::HealthRequest::descriptor()->file()->FindServiceByName("OpenShell");
  for (int i = 0; i < service->method_count(); ++i) {
    const auto& method = *service->method(i);
    if (identified_type(*method.input_type()) == nullptr) continue;
    const bool unary = !method.client_streaming() && !method.server_streaming();
    out.emplace(method.name(), CoveredMethod{method.name(), unary, method.output_type(), !kWithoutSecrets.contains(method.name())});
  }
  return out;
}

Message* identified_part(Message& request) {
  const auto* type = identified_type(*request.GetDescriptor());
  if (type == nullptr || type == request.GetDescriptor()) return type == nullptr ? nullptr : &request;
  const auto* start = request.GetDescriptor()->FindFieldByName("start");
  if (!request.GetReflection()->HasField(request, start)) return nullptr;
  return request.GetReflection()->MutableMessage(&request, start);
}

std::string request_id_of(const Message& part) { return text_of(part, "request_id"); }

absl::StatusOr<RequestScope> scope_of(std::string_view method, const Message& part) {
  RequestScope scope;
  if (method == "CreateWorkspace" || method == "DeleteWorkspace") {
    scope.workspace = text_of(part, "name");
    scope.platform_admin = true;
    return scope;
  }
  const auto& reflection = *part.GetReflection();
  const auto* global = part.GetDescriptor()->FindFieldByName("global");
  if (global != nullptr && global->cpp_type() == FieldDescriptor::CPPTYPE_BOOL && reflection.GetBool(part, global)) {
    scope.platform_admin = true;
    return scope;
  }
  const auto* selector = part.GetDescriptor()->FindFieldByName("workspace_scope");
  if (selector == nullptr) {
    scope.workspace = scope.role_in = text_of(part, "workspace");
    return scope;
  }
  if (!reflection.HasField(part, selector) && kPlatformWithoutScope.contains(method)) {
    scope.platform_admin = true;
    return scope;
  }
  datamodel::v1::WorkspaceSelector chosen;
  chosen.CopyFrom(reflection.GetMessage(part, selector));
  auto workspace = single_workspace(chosen);
  if (!workspace.ok()) return workspace.status();
  scope.workspace = scope.role_in = *std::move(workspace);
  return scope;
}

std::string sandbox_of(std::string_view method, const Message& part) {
  return method.starts_with("Delete") || method.starts_with("Remove") ? std::string{} : text_of(part, "sandbox");
}

std::string caller_hash(const Identity& identity) { return hash_of_list({identity_provider(identity.source), "", identity.subject}); }

std::string admission_key(std::string_view caller, std::string_view method, std::string_view workspace, std::string_view request_id) {
  return hash_of_list({caller, method, workspace, absl::AsciiStrToLower({request_id.data(), request_id.size()})});
}

FingerprintKey::FingerprintKey(const Secret& private_key) {
  std::string text = "openshell/mutation-fingerprint/v1";
  text += '\0';
  text += private_key.reveal();
  key_ = Secret{sha256(text)};
  wipe(text);
  std::string named = "openshell/mutation-fingerprint-key-id/v1";
  named += '\0';
  named += key_.reveal();
  id_ = absl::BytesToHexString(sha256(named)).substr(0, 32);
  wipe(named);
}

std::string fingerprint(Message& part, const FingerprintKey* key) {
  const auto* field = text_field(*part.GetDescriptor(), "request_id");
  // Taken out for a moment instead of copied: a copy of the secrets in it could not be wiped.
  const std::string id = part.GetReflection()->GetString(part, field);
  part.GetReflection()->ClearField(&part, field);
  std::string bytes;
  bytes.reserve(part.ByteSizeLong() + 64);
  {
    google::protobuf::io::StringOutputStream out{&bytes};
    google::protobuf::io::CodedOutputStream coded{&out};
    coded.SetSerializationDeterministic(true);
    part.SerializeWithCachedSizes(&coded);
  }
  part.GetReflection()->SetString(&part, field, id);
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest{};
  if (key == nullptr) {
    SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest.data());
  } else {
    HMAC(EVP_sha256(), key->bytes().data(), static_cast<int>(key->bytes().size()), reinterpret_cast<const unsigned char*>(bytes.data()),
         bytes.size(), digest.data(), nullptr);
  }
  wipe(bytes);
  return {reinterpret_cast<const char*>(digest.data()), digest.size()};
}

}  // namespace openshell::api
