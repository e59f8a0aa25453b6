#include "drivers/process/launch_material.hpp"

#include "drivers/retention.hpp"

#include <stdlib.h>

#include <algorithm>
#include <boost/json.hpp>

#include "observability/fault_point.hpp"
#include "pki/certificate.hpp"

namespace openshell::drivers::process {
namespace {

constexpr std::uint32_t kReadByOwner = 0400;

// The user's environment, upper layer last; names of ours are nobody's to set. The sandbox filters the rest.
boundary::Environment child_environment(const SandboxSpec& spec) {
  boundary::Environment merged;
  for (const auto* layer : {&spec.template_environment, &spec.environment}) {
    for (const auto& [name, value] : *layer) {
      if (name.compare(0, 10, "OPENSHELL_") != 0) merged[name] = value;
    }
  }
  return merged;
}

boundary::Descriptor descriptor(const ProcessDriverOptions& options, const SandboxPaths& paths, const SandboxSpec& spec,
                                const LaunchAuthentication& launch, const LaunchFacts& facts,
                                const pki::SessionCertificates& certificates) {
  boundary::Descriptor d;
  d.boundary_id = spec.id.str();
  d.generation = launch.runtime_generation.str();
  d.session_id = launch.session_id.str();
  d.workload_identity = facts.identity;
  d.transport = boundary::UnixTransport{paths.control_socket()};
  d.tls_server_name = certificates.server_name;
  d.tls_trust_anchor_pem = certificates.ca_certificate;
  d.tls_client_certificate_pem = certificates.client_certificate;
  d.tls_client_private_key_pem = certificates.client_key;
  d.host_gateway_ip = options.host_gateway_ip;
  d.resource_claims = facts.claims;
  d.outer_fence = facts.fence;
  return d;
}

boundary::AuthBundle auth_bundle(const LaunchAuthentication& launch) {
  boundary::AuthBundle bundle;
  bundle.session_id = launch.session_id.str();
  bundle.runtime_generation = launch.runtime_generation.str();
  bundle.session_rotation = launch.session_rotation;
  bundle.auth_epoch = launch.auth_epoch;
  bundle.gateway_token = launch.gateway_token;
  bundle.gateway_expires_at = static_cast<std::uint64_t>(std::max<std::int64_t>(0, launch.gateway_expires_at));
  bundle.sandbox_token = launch.sandbox_token;
  bundle.sandbox_expires_at = static_cast<std::uint64_t>(std::max<std::int64_t>(0, launch.sandbox_expires_at));
  return bundle;
}

boundary::Bootstrap bootstrap(const ProcessDriverOptions& options, const SandboxSpec& spec, const LaunchAuthentication& launch,
                              const LaunchFacts& facts, bool require_pid_limit) {
  boundary::Bootstrap b;
  b.boundary_id = spec.id.str();
  b.generation = launch.runtime_generation.str();
  b.session_id = launch.session_id.str();
  b.session_rotation = launch.session_rotation;
  b.auth_epoch = launch.auth_epoch;
  b.gateway_id = launch.gateway_id.empty() ? options.gateway_id : launch.gateway_id;
  for (const VerificationKey& key : launch.verification_keys) b.verification_keys.push_back({key.key_id, key.public_key_pem});
  b.listener.endpoint = boundary::UnixListener{"/.openshell/channel/control.sock"};
  b.listener.tls = {"/.openshell/sandbox/server.pem", "/.openshell/sandbox/key.pem", "/.openshell/sandbox/client-ca.pem"};
  b.resource_claims = facts.claims;
  b.workload_identity = facts.identity;
  b.outer_fence = facts.fence;
  b.child_env = child_environment(spec);
  b.image_env = {{"PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}, {"LANG", "C.UTF-8"}};
  b.require_pid_limit = require_pid_limit;
  b.stop_grace_secs = options.stop_timeout_secs;
  b.peer_names = boundary::PeerNames::anyip;
  return b;
}

std::string main_process_json(const SandboxSpec& spec) {
  boost::json::array command;
  for (const std::string& word : spec.command) command.emplace_back(word);
  boost::json::object object{{"version", 1}, {"command", command}, {"tty", spec.command.empty() || spec.tty}};
  if (spec.await_main_process_attachment) object["await_main_process_attachment"] = true;
  if (const auto kept = spec.labels.find(std::string(kRetentionLabel)); kept != spec.labels.end() && kept->second == kRetentionEphemeral)
    object["ephemeral"] = true;
  return boost::json::serialize(object);
}

}  // namespace

absl::Status check_additional_bundle(const std::string& pem) {
  if (pem.empty()) return absl::OkStatus();
  const auto certificates = pki::certificates_from_pem(pem);
  if (certificates.ok()) return absl::OkStatus();
  return absl::FailedPreconditionError("additional_ca_bundle of [openshell.supervisor.network]: " +
                                       std::string(certificates.status().message()));
}

absl::StatusOr<pki::SessionCertificates> prepare_certificates(const LaunchAuthentication& launch) {
  if (auto status = check_additional_bundle(launch.supervisor_settings.additional_ca_bundle_pem); !status.ok()) return status;
  return pki::make_session_certificates(launch.session_id);
}

absl::Status write_launch_material(const ProcessDriverOptions& options, const SandboxFiles& files, const Parties& parties,
                                   const SandboxSpec& spec, const LaunchAuthentication& launch, const LaunchFacts& facts,
                                   const pki::SessionCertificates& certificates, bool require_pid_limit) {
  const std::string& id = spec.id.str();
  const auto boundary_descriptor = descriptor(options, files.paths(id), spec, launch, facts, certificates);
  const std::string boundary_bootstrap = boundary::serialise(bootstrap(options, spec, launch, facts, require_pid_limit));
  // What the reader would refuse is refused here, with its words, before anything starts.
  if (auto parsed = boundary::parse_bootstrap(boundary_bootstrap); !parsed.ok()) return parsed.status();
  const Secret descriptor_text{boundary::serialise(boundary_descriptor)}, bundle_text{boundary::serialise(auth_bundle(launch))};
  if (auto parsed = boundary::parse_descriptor(descriptor_text.reveal()); !parsed.ok()) return parsed.status();
  if (auto parsed = boundary::parse_auth_bundle(bundle_text.reveal()); !parsed.ok()) return parsed.status();

  struct File {
    const char *party, *name;
    std::string_view content;
    Owner owner;
  };
  std::vector<File> wanted{{"supervisor", "descriptor.json", descriptor_text.reveal(), parties.supervisor},
                           {"supervisor", "auth.json", bundle_text.reveal(), parties.supervisor},
                           {"sandbox", "bootstrap.json", boundary_bootstrap, parties.workload},
                           {"sandbox", "key.pem", certificates.server_key.reveal(), parties.workload},
                           {"sandbox", "server.pem", certificates.server_certificate, parties.workload},
                           {"sandbox", "client-ca.pem", certificates.ca_certificate, parties.workload}};
  if (!options.gateway_ca_pem.empty()) wanted.push_back({"supervisor", "gateway-ca.crt", options.gateway_ca_pem, parties.supervisor});
  const std::string& additional = launch.supervisor_settings.additional_ca_bundle_pem;
  if (!additional.empty()) wanted.push_back({"supervisor", "additional-ca-bundle.pem", additional, parties.supervisor});
  for (const File& file : wanted) {
    if (auto status = files.write_runtime_file(id, file.party, file.name, file.content, kReadByOwner, file.owner); !status.ok())
      return status;
  }
  return absl::OkStatus();
}

SupervisorPlan supervisor_plan(const ProcessDriverOptions& options, const SandboxFiles& files, const Parties& parties,
                               const SandboxSpec& spec, const LaunchAuthentication& launch, bool change_identity) {
  const SandboxPaths paths = files.paths(spec.id.str());
  const std::string own = paths.runtime + "/supervisor", kept = paths.state + "/supervisor";
  SupervisorPlan plan;
  plan.path = options.supervisor_path;
  plan.uid = parties.supervisor.uid;
  plan.gid = parties.supervisor.gid;
  plan.change_identity = change_identity;
  plan.argv = {"openshell-supervisor",
               "--backend-descriptor-file",
               own + "/descriptor.json",
               "--auth-bundle-file",
               own + "/auth.json",
               "--ssh-socket-path",
               own + "/ssh.sock",
               "--health-socket-path",
               own + "/health.sock",
               "--state-dir",
               kept + "/state",
               "--log-dir",
               kept + "/log",
               "--ocsf-log-dir",
               kept + "/ocsf",
               "--main-exit-marker",
               kept + "/main-process-exited",
               "--gateway-outage-limit-secs",
               std::to_string(launch.gateway_outage_limit_secs)};
  const SupervisorSettings& settings = launch.supervisor_settings;
  const auto flag = [&plan](const char* name, std::string value) {
    plan.argv.emplace_back(name);
    plan.argv.push_back(std::move(value));
  };
  if (settings.poll_interval_secs) flag("--poll-interval-secs", std::to_string(*settings.poll_interval_secs));
  if (settings.denial_flush_interval_secs) flag("--denial-flush-interval-secs", std::to_string(*settings.denial_flush_interval_secs));
  if (!settings.additional_ca_bundle_pem.empty()) flag("--additional-ca-bundle", own + "/additional-ca-bundle.pem");
  for (const std::string& resolver : settings.resolvers) flag("--resolver", resolver);

  const auto set = [&plan](const char* name, const std::string& value) { plan.environment.push_back(std::string(name) + "=" + value); };
  set("OPENSHELL_ENDPOINT", options.gateway_endpoint);
  set("OPENSHELL_SANDBOX_ID", spec.id.str());
  set("OPENSHELL_SANDBOX", spec.name);
  set("OPENSHELL_ADMITTED_ISOLATION_BACKEND", "openshell-sandbox");
  set("OPENSHELL_SSH_SOCKET_PATH", own + "/ssh.sock");
  set("OPENSHELL_LOG_LEVEL", spec.log_level.empty() ? options.supervisor_log_level : spec.log_level);
  set("OPENSHELL_MAIN_PROCESS_SPEC", main_process_json(spec));
  set("OPENSHELL_TELEMETRY_ENABLED", options.telemetry_enabled ? "true" : "false");
  set("OPENSHELL_NETWORK_RUNTIME_CAPABILITIES", "policy-dns-transparent-tcp");
  if (!spec.image.empty()) set("OPENSHELL_CONTAINER_IMAGE", spec.image);
  if (!options.gateway_ca_pem.empty()) set("OPENSHELL_TLS_CA", own + "/gateway-ca.crt");
  if (!options.gateway_tls_server_name.empty()) set("OPENSHELL_GATEWAY_TLS_SERVER_NAME", options.gateway_tls_server_name);
  if (const auto faults = fault::plan_for_child("OPENSHELL_FAULT_SUPERVISOR", spec.name)) set("OPENSHELL_FAULT", *faults);
  return plan;
}

}  // namespace openshell::drivers::process
