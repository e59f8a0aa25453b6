#include "isolation/boundary/control_fields.hpp"

namespace openshell::boundary {

namespace json = internal::json;

namespace {

constexpr std::array<std::string_view, std::variant_size_v<Response>> kResults{"error",
                                                                               "image_policy",
                                                                               "attached",
                                                                               "confirmed",
                                                                               "provider_files_supported",
                                                                               "started",
                                                                               "provider_environment_updated",
                                                                               "process_attached",
                                                                               "exited",
                                                                               "signaled",
                                                                               "terminated",
                                                                               "boundary_terminated",
                                                                               "exec_started",
                                                                               "resized",
                                                                               "port_connected",
                                                                               "network_connected",
                                                                               "mediation_ready",
                                                                               "introspected",
                                                                               "links_resolved"};

template <std::size_t I = 0>
absl::StatusOr<Response> decode_result(std::size_t index, const json::object& object) {
  if constexpr (I < std::variant_size_v<Response>) {
    if (index != I) return decode_result<I + 1>(index, object);
    std::variant_alternative_t<I, Response> response;
    internal::Reader reader{object, std::string(kResults[I])};
    reader.expect("result");
    fields(reader, response);
    if (auto s = reader.finish(); !s.ok()) return s;
    return Response{std::in_place_index<I>, std::move(response)};
  } else {
    return absl::InvalidArgumentError("unknown result");
  }
}

template <class F>
void common_fields(F& f, Confirmation& x) {
  f("generation", x.generation), f("identity", x.identity), f("properties", x.properties),
      f("authenticated_supervisor", x.authenticated_supervisor);
  f("session_id", x.session_id), f("outer_fence", x.outer_fence), f("runtime_exit_terminates_workload", x.runtime_exit_terminates_workload);
  f("resource_claims", x.resource_claims);
}

}  // namespace

json::value encode_json(const Confirmation& x) {
  json::object object;
  internal::Writer writer{object};
  common_fields(writer, const_cast<Confirmation&>(x));  // the writer only reads
  object["backend_audit"] = internal::to_json(x.backend_audit);
  return object;
}

absl::Status decode_json(const json::value& value, Confirmation& x, const std::string& where) {
  if (!value.is_object()) return internal::wrong(where, "not an object");
  internal::Reader reader{value.get_object(), where};
  common_fields(reader, x);
  reader.expect("backend_audit");
  if (auto s = reader.finish(); !s.ok()) return s;
  const json::value* audit = value.get_object().if_contains("backend_audit");
  if (audit == nullptr) return internal::wrong(where + ".backend_audit", "missing");
  x.backend_audit.emplace();
  if (!internal::from_json(*audit, *x.backend_audit, where + ".backend_audit").ok()) x.backend_audit.reset();  // opaque: another backend's
  return absl::OkStatus();
}

std::string_view result_name(const Response& response) { return kResults[response.index()]; }

std::string_view error_kind_name(ErrorKind kind) { return names_of(kind)[static_cast<std::size_t>(kind)]; }

std::string encode_response(std::string_view request_id, const Response& response) {
  json::object object = std::visit([](const auto& x) { return internal::to_json(x); }, response).get_object();
  if (auto* message = object.if_contains("message"); message != nullptr && std::holds_alternative<Error>(response)) {
    const std::string_view text{message->get_string().data(), message->get_string().size()};
    if (text.size() > kMaxErrorMessageBytes) *message = json::value(internal::valid_utf8(text.substr(0, kMaxErrorMessageBytes - 4)));
  }
  object["result"] = result_name(response);
  return json::serialize(json::object{{"request_id", internal::valid_utf8(request_id)}, {"response", std::move(object)}});
}

absl::StatusOr<ResponseEnvelope> decode_response(std::string_view text) {
  auto value = internal::parse_strict(text);
  if (!value.ok()) return value.status();
  if (!value->is_object()) return absl::InvalidArgumentError("control response is not an object");
  ResponseEnvelope envelope{"", Error{}};
  internal::Reader reader{value->get_object(), "control response"};
  reader("request_id", envelope.request_id);
  reader.expect("response");
  if (auto s = reader.finish(); !s.ok()) return s;
  const json::value* response = value->get_object().if_contains("response");
  if (response == nullptr || !response->is_object()) return absl::InvalidArgumentError("control response.response: not an object");
  const json::value* result = response->get_object().if_contains("result");
  if (result == nullptr || !result->is_string()) return absl::InvalidArgumentError("control response.result: missing");
  const std::string_view name{result->get_string().data(), result->get_string().size()};
  std::size_t index = 0;
  while (index < kResults.size() && kResults[index] != name) ++index;
  auto decoded = decode_result(index, response->get_object());
  if (!decoded.ok()) return decoded.status();
  envelope.response = std::move(*decoded);
  return envelope;
}

absl::StatusOr<Properties> properties_of(const BackendAudit& audit) {
  const auto missing = [](std::string_view what) {
    return absl::FailedPreconditionError(fmt::format("native Linux sandbox audit evidence is incomplete: {}", what));
  };
  const auto& c = audit.capabilities;
  if ((c.inheritable | c.permitted | c.effective | c.bounding | c.ambient) != 0) return missing("capabilities");
  if (audit.sandbox_dumpable) return missing("sandbox_dumpable");
  if (audit.landlock_abi < 3) return missing("landlock_abi");
  if (!audit.seccomp.cancellation && !audit.seccomp.task_memory_writes_disabled) return missing("cancellation");
  const auto& s = audit.seccomp;
  const std::pair<bool, std::string_view> flags[] = {{audit.no_new_privileges, "no_new_privileges"},
                                                     {audit.child_dumpable, "child_dumpable"},
                                                     {audit.core_limit_zero, "core_limit_zero"},
                                                     {audit.native_architecture, "native_architecture"},
                                                     {s.new_listener, "new_listener"},
                                                     {s.notification_round_trip, "notification_round_trip"},
                                                     {s.id_validation, "id_validation"},
                                                     {s.addfd_send, "addfd_send"},
                                                     {s.retained_socket_operation, "retained_socket_operation"},
                                                     {s.proc_fd_identity, "proc_fd_identity"},
                                                     {s.task_memory_read, "task_memory_read"},
                                                     {s.task_memory_write || s.task_memory_writes_disabled, "task_memory_write"},
                                                     {audit.landlock_allow_deny, "landlock_allow_deny"},
                                                     {audit.udp_dns_round_trip, "udp_dns_round_trip"},
                                                     {audit.tcp_dns_round_trip, "tcp_dns_round_trip"},
                                                     {audit.tcp_allow_round_trip, "tcp_allow_round_trip"},
                                                     {audit.tcp_deny_round_trip, "tcp_deny_round_trip"}};
  for (const auto& [set, name] : flags) {
    if (!set) return missing(name);
  }
  return Properties{{true, fmt::format("landlock-v{}", audit.landlock_abi)},
                    {true, "seccomp-notify"},
                    {true, "seccomp-notify-procfs"},
                    {true, "linux-capability-free"}};
}

}  // namespace openshell::boundary
