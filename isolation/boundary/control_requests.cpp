#include "isolation/boundary/control_fields.hpp"
#include "isolation/boundary/digest.hpp"

namespace openshell::boundary {

namespace json = internal::json;

namespace {

constexpr std::array<std::string_view, std::variant_size_v<Request>> kOperations{"discover_policy",
                                                                                 "attach",
                                                                                 "confirm",
                                                                                 "probe_provider_files",
                                                                                 "start_agent",
                                                                                 "update_provider_environment",
                                                                                 "attach_process",
                                                                                 "wait",
                                                                                 "signal",
                                                                                 "exec_signal",
                                                                                 "terminate",
                                                                                 "terminate_boundary",
                                                                                 "exec",
                                                                                 "resize",
                                                                                 "loopback_connect",
                                                                                 "accept_network",
                                                                                 "open_mediation",
                                                                                 "introspect",
                                                                                 "resolve_links"};

constexpr std::string_view kExpiry = "exec_expires_at_unix_ms";

json::object operation_to_json(const Request& request) {
  json::object object = std::visit([](const auto& operation) { return internal::to_json(operation); }, request).get_object();
  object["operation"] = operation_name(request);
  return object;
}

/// The digest binds the expiry of an exec too, though it travels beside the request.
std::string digest_of(json::object request, std::optional<std::uint64_t> expiry) {
  if (expiry) request[kExpiry] = *expiry;
  return sha256_hex(internal::canonical(request));
}

template <std::size_t I = 0>
absl::StatusOr<Request> decode_operation(std::size_t index, const json::object& object) {
  if constexpr (I < std::variant_size_v<Request>) {
    if (index != I) return decode_operation<I + 1>(index, object);
    std::variant_alternative_t<I, Request> operation;
    internal::Reader reader{object, std::string(kOperations[I])};
    reader.expect("operation");
    fields(reader, operation);
    if (auto s = reader.finish(); !s.ok()) return s;
    return Request{std::in_place_index<I>, std::move(operation)};
  } else {
    return absl::InvalidArgumentError("unknown operation");
  }
}

/// Bounds that the types alone do not say.
absl::Status check_request(const Request& request) {
  if (const auto* exec = std::get_if<Exec>(&request)) {
    const bool named = !exec->spec.program.empty();
    const int kinds = (named ? 1 : 0) + (exec->spec.shell ? 1 : 0) + (exec->spec.runtime_helper ? 1 : 0);
    if (kinds != 1) return absl::InvalidArgumentError("exec spec must have exactly one of program, shell and runtime_helper");
    if (exec->spec.runtime_helper && *exec->spec.runtime_helper != "sftp")
      return absl::InvalidArgumentError("exec.runtime_helper is not sftp");
    if (!named && !exec->spec.args.empty()) return absl::InvalidArgumentError("exec.args without a program");
  } else if (const auto* start = std::get_if<StartAgent>(&request)) {
    if (start->spec.program.empty() && !start->spec.args.empty()) return absl::InvalidArgumentError("start_agent.args without a program");
    if (start->ca_cert.has_value() != start->ca_bundle.has_value())
      return absl::InvalidArgumentError("ca_cert and ca_bundle come together");
  } else if (const auto* introspect = std::get_if<Introspect>(&request)) {
    if (introspect->max_actors < 1 || introspect->max_actors > 128)
      return absl::InvalidArgumentError("introspect.max_actors out of range 1..128");
    if (introspect->max_bytes < 1'024 || introspect->max_bytes > 65'536)
      return absl::InvalidArgumentError("introspect.max_bytes out of range 1024..65536");
  } else if (const auto* connect = std::get_if<LoopbackConnect>(&request)) {
    if (connect->port == 0) return absl::InvalidArgumentError("loopback_connect.port is 0");
  } else if (const auto* links = std::get_if<ResolveLinks>(&request)) {
    if (links->paths.size() > ResolveLinks::kMaxPaths) return absl::InvalidArgumentError("resolve_links.paths has more than 1024 entries");
  }
  return absl::OkStatus();
}

}  // namespace

std::string_view operation_name(const Request& request) { return kOperations[request.index()]; }

std::string payload_digest(const Request& request) {
  const auto* exec = std::get_if<Exec>(&request);
  return digest_of(operation_to_json(request), exec ? std::optional{exec->expires_at_unix_ms} : std::nullopt);
}

std::string encode_request(std::string_view request_id, const Request& request) {
  json::object envelope;
  envelope["request_id"] = internal::valid_utf8(request_id);
  auto operation = operation_to_json(request);
  const auto* exec = std::get_if<Exec>(&request);
  envelope["payload_digest"] = digest_of(operation, exec ? std::optional{exec->expires_at_unix_ms} : std::nullopt);
  if (exec != nullptr) envelope[kExpiry] = exec->expires_at_unix_ms;
  envelope["request"] = std::move(operation);
  return json::serialize(envelope);
}

std::variant<RequestEnvelope, RefusedRequest> decode_request(std::string_view text) {
  auto value = internal::parse_strict(text);
  if (!value.ok()) return RefusedRequest{"", value.status()};
  if (!value->is_object()) return RefusedRequest{"", absl::InvalidArgumentError("control request is not an object")};
  const json::object& object = value->get_object();
  std::string id, digest;
  std::optional<std::uint64_t> expiry;
  internal::Reader reader{object, "control request"};
  reader("request_id", id);
  reader("payload_digest", digest);
  reader.expect("request");
  if (object.contains(kExpiry)) reader(kExpiry, expiry.emplace());
  if (auto s = reader.finish(); !s.ok()) return RefusedRequest{id, s};
  const auto refuse = [&](absl::Status status) { return RefusedRequest{id, std::move(status)}; };
  if (id.empty() || id.size() > 64) return RefusedRequest{"", absl::InvalidArgumentError("control request.request_id is not an id")};
  const json::value* request = object.if_contains("request");
  if (request == nullptr || !request->is_object()) return refuse(absl::InvalidArgumentError("control request.request: not an object"));
  if (digest_of(request->get_object(), expiry) != digest)
    return refuse(absl::PermissionDeniedError("control request payload digest mismatch"));
  const json::value* operation = request->get_object().if_contains("operation");
  if (operation == nullptr || !operation->is_string()) return refuse(absl::InvalidArgumentError("control request.operation: missing"));
  const std::string_view name{operation->get_string().data(), operation->get_string().size()};
  std::size_t index = 0;
  while (index < kOperations.size() && kOperations[index] != name) ++index;
  auto decoded = decode_operation(index, request->get_object());
  if (!decoded.ok()) return refuse(decoded.status());
  if (auto* exec = std::get_if<Exec>(&*decoded)) {
    if (!expiry) return refuse(absl::InvalidArgumentError("control request.exec_expires_at_unix_ms: missing"));
    exec->expires_at_unix_ms = *expiry;
  } else if (expiry) {
    return refuse(absl::InvalidArgumentError("control request.exec_expires_at_unix_ms: only exec has it"));
  }
  if (auto s = check_request(*decoded); !s.ok()) return refuse(s);
  return RequestEnvelope{std::move(id), std::move(digest), std::move(*decoded)};
}

}  // namespace openshell::boundary
