#include "actors/sandbox/runtime.hpp"

#include <fmt/format.h>
#include <grp.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <caf/actor_system.hpp>
#include <caf/send.hpp>
#include <caf/stateful_actor.hpp>
#include <caf/typed_event_based_actor.hpp>
#include <chrono>
#include <cstdio>
#include <future>
#include <mutex>
#include <thread>

#include "actors/introspection/directory.hpp"
#include "actors/sandbox/boundary.hpp"
#include "actors/sandbox/channel_server.hpp"
#include "actors/sandbox/dns_stub.hpp"
#include "actors/sandbox/environment.hpp"
#include "actors/sandbox/exec_registry.hpp"
#include "actors/sandbox/launcher_control.hpp"
#include "actors/sandbox/link_resolver.hpp"
#include "actors/sandbox/mechanisms.hpp"
#include "actors/sandbox/mediation_lease.hpp"
#include "actors/sandbox/tree_control.hpp"
#include "actors/sandbox/watch.hpp"
#include "actors/sandbox/workload_files.hpp"
#include "actors/supervision/sleeping_scheduler.hpp"
#include "isolation/cgroup.hpp"

namespace openshell::sandbox {

namespace asio = boost::asio;

namespace {

constexpr char kResolverAddress[] = "127.0.0.53";
constexpr std::uint16_t kResolverPort = 53;
constexpr char kProviderDirectory[] = "/run/openshell/providers";

struct Failure {
  int code = 0;
  std::string message;
};

int fail(int code, const std::string& message) {
  spdlog::error("{}", message);
  return code;
}

/// Everything that was read from the launch files, which are gone afterwards.
struct Launch {
  boundary::Bootstrap bootstrap;
  std::string certificate_chain, client_ca;
  Secret private_key;
};

std::string trimmed(std::string text) {
  const auto space = [](char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; };
  while (!text.empty() && space(text.back())) text.pop_back();
  while (!text.empty() && space(text.front())) text.erase(text.begin());
  return text;
}

absl::StatusOr<Launch> read_launch(const std::string& path, const isolation::Posture& posture) {
  auto text = boundary::read_launch_file(path);
  if (!text.ok()) {
    return absl::IsNotFound(text.status()) ? absl::NotFoundError(fmt::format("bootstrap {} is missing or was consumed already", path))
                                           : text.status();
  }
  auto bootstrap = boundary::parse_bootstrap(*text);
  wipe(*text);
  if (!bootstrap.ok()) return bootstrap.status();
  Launch launch{std::move(*bootstrap), {}, {}, {}};
  for (const auto& [claim, file] : launch.bootstrap.resource_claim_files) {
    auto content = boundary::read_launch_file(file);
    if (!content.ok() || trimmed(*content) != launch.bootstrap.resource_claims.at(claim)) {
      return absl::FailedPreconditionError(fmt::format("runtime resource claim {} does not match the admitted resource", claim));
    }
  }
  const auto& claims = launch.bootstrap.resource_claims;
  const auto set = [&](std::string_view key) {
    const auto it = claims.find(std::string(key));
    return it != claims.end() && it->second == "true";
  };
  const bool extra = set(boundary::kClaimGpu) || set(boundary::kClaimExtraGroups);
  if (auto status = check_identity(posture, launch.bootstrap.workload_identity, extra); !status.ok()) return status;
  const auto& tls = launch.bootstrap.listener.tls;
  auto chain = boundary::read_launch_file(tls.certificate_chain_path);
  auto key = boundary::read_launch_file(tls.private_key_path);
  auto ca = boundary::read_launch_file(tls.client_ca_certificate_path);
  for (const auto* file : {&chain, &key, &ca}) {
    if (!file->ok()) return absl::FailedPreconditionError(std::string(file->status().message()));
  }
  launch.certificate_chain = std::move(*chain);
  launch.client_ca = std::move(*ca);
  launch.private_key = Secret{std::move(*key)};
  return launch;
}

/// Bootstrap and key exist once: a second start finds nothing.
absl::Status consume(const std::string& path, const Launch& launch) {
  for (const std::string& file : {path, launch.bootstrap.listener.tls.private_key_path}) {
    if (::unlink(file.c_str()) != 0 && errno != ENOENT) return absl::ErrnoToStatus(errno, fmt::format("unlink {}", file));
  }
  return absl::OkStatus();
}

absl::Status check_pid_limit(bool required) {
  const auto limit = isolation::own_pid_limit();
  if (limit.ok() && limit->has_value()) return absl::OkStatus();
  const std::string text =
      limit.ok()
          ? "runtime cgroup pids.max is unlimited; configure the compute driver or container runtime to enforce a PID limit"
          : fmt::format(
                "runtime cgroup pids.max is unavailable ({}); configure the compute driver or container runtime to enforce a PID limit",
                std::string(limit.status().message()));
  if (required) return absl::FailedPreconditionError(text);
  spdlog::warn("{}", text);
  return absl::OkStatus();
}

/// The parts that run, in the order of their life.
class Runtime {
 public:
  Runtime(Launch launch, Mechanisms mechanisms, std::shared_ptr<DnsStub> dns, asio::io_context& io)
      : launch_{std::move(launch)}, mechanisms_{std::move(mechanisms)}, dns_{std::move(dns)}, io_{io}, system_{config_} {}

  absl::Status start() {
    const auto& b = launch_.bootstrap;
    auto verifier = boundary::SessionTokenVerifier::make(b.verification_keys, {b.gateway_id, b.boundary_id, b.generation, b.auth_epoch});
    if (!verifier.ok()) return verifier.status();
    spawn_actors();
    ChannelServer::Options options{b.listener, launch_.certificate_chain, std::move(launch_.private_key), launch_.client_ca,
                                   std::move(*verifier)};
    ChannelServer::Events events;
    events.opened = [this](ConnectionNumber n) { caf::anon_send(boundary_, opened_atom::value, n); };
    events.closed = [this](ConnectionNumber n) { caf::anon_send(boundary_, closed_atom::value, n); };
    events.handover = [handover = handover_](isolation::FileDescriptor connection) { handover->adopt(std::move(connection)); };
    events.request = [this](std::shared_ptr<Call> call) { caf::anon_send(boundary_, request_atom::value, IncomingCall{std::move(call)}); };
    auto channel = ChannelServer::start(std::move(options), std::move(events));
    if (!channel.ok()) return channel.status();
    const std::lock_guard lock{channel_mutex_};
    channel_ = std::move(*channel);
    return absl::OkStatus();
  }

  int wait() { return exit_code_.get_future().get(); }
  void signalled(int number) { caf::anon_send(boundary_, stop_atom::value, std::int32_t{number}); }

 private:
  template <class Actor>
  Actor watched(Actor actor) {
    return sandbox::watched(std::move(actor), [this](const caf::error& reason) {
      spdlog::critical("an actor ended: {}", system_.render(reason));
      leave(kExitInternal);
    });
  }

  void spawn_actors() {
    const auto& b = launch_.bootstrap;
    auto dir = system_.spawn(directory);
    auto tree = watched(system_.spawn<caf::detached>(tree_control, mechanisms_.tree, dir));
    auto broker = watched(system_.spawn<caf::detached>(broker_control, make_open_gate(*mechanisms_.broker), &io_, handover_, dir));
    handover_->decide_with(line_gate(make_open_gate(*mechanisms_.broker)));
    mechanisms_.decider->prefer(handover_);
    mechanisms_.decider->serve(broker);
    LauncherDependencies with;
    with.launcher = mechanisms_.launcher.get();
    with.io = &io_;
    with.landlock = mechanisms_.posture.landlock;
    with.frame.image_env = b.image_env;
    with.frame.user_env = b.child_env;
    with.frame.ca_directory = kCaDirectory;
    with.frame.provider_directory = kProviderDirectory;
    auto launcher = watched(system_.spawn<caf::detached>(launcher_control, std::move(with), dir));
    auto registry = watched(system_.spawn(exec_registry, ExecRegistryDependencies{launcher, tree, b.generation, {}, unix_ms}, dir));
    auto lease = watched(system_.spawn(
        mediation_lease, [dns = dns_](std::function<void()> released) { return dns->stream(std::move(released)); }, dir));
    BoundaryDependencies deps;
    deps.registry = registry;
    deps.launcher = launcher;
    deps.tree = tree;
    deps.broker = broker;
    deps.lease = lease;
    deps.directory = dir;
    deps.machine = {b.boundary_id, b.resource_claims, b.workload_identity, [](const std::string& name) -> std::optional<std::uint32_t> {
                      const auto account = find_account(read_accounts(), name);
                      return account ? std::optional{account->uid} : std::nullopt;
                    }};
    deps.generation = b.generation;
    deps.measure = [this](const std::string& supervisor) { return measure(supervisor); };
    deps.close_connection = [this](ConnectionNumber n) {
      const std::lock_guard lock{channel_mutex_};
      if (channel_) channel_->close(n);
    };
    deps.resolve_links = [this](std::shared_ptr<Call> call) {
      asio::post(io_, [call = std::move(call)] {
        call->respond(resolve_links(std::get<boundary::ResolveLinks>(call->request()->envelope.request)));
      });
    };
    deps.loopback_connect = [this](std::shared_ptr<Call> call) { serve_loopback_connect(io_, std::move(call)); };
    deps.exit = [this](int code) { leave(code); };
    deps.unix_seconds = [] { return static_cast<std::int64_t>(unix_ms() / 1'000); };
    deps.recovery_window = std::chrono::milliseconds{b.recovery_window_ms};
    deps.stop_grace_secs = b.stop_grace_secs;
    boundary_ = watched(system_.spawn(boundary_actor, std::move(deps)));
    for (const char* name : {"tree_control", "broker_control", "launcher_control", "exec_registry", "mediation_lease"})
      announce(dir, name, "sandbox");
  }

  static std::uint64_t unix_ms() {
    return static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::system_clock::now().time_since_epoch()).count());
  }

  /// The cheap facts are read anew each time; what needed a probe child was measured before any workload existed.
  boundary::Response measure(const std::string& supervisor) {
    const auto broken = [](const std::string& what) { return boundary::Error{boundary::ErrorKind::process, what}; };
    const auto& b = launch_.bootstrap;
    const auto posture = isolation::read_posture();
    if (!posture.ok()) return broken(std::string(posture.status().message()));
    const bool extra = b.resource_claims.contains(std::string(boundary::kClaimExtraGroups)) ||
                       b.resource_claims.contains(std::string(boundary::kClaimGpu));
    if (auto status = check_identity(*posture, b.workload_identity, extra); !status.ok()) return broken(std::string(status.message()));
    if (!mechanisms_.broker->healthy()) return broken("socket broker is not healthy");
    boundary::BackendAudit audit = audit_of(mechanisms_.audit);
    const auto& c = posture->capabilities;
    audit.capabilities = {c.inheritable, c.permitted, c.effective, c.bounding, c.ambient};
    audit.sandbox_dumpable = ::prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) != 0;
    audit.no_new_privileges = ::prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1;
    auto properties = boundary::properties_of(audit);
    if (!properties.ok()) return broken(std::string(properties.status().message()));
    return boundary::Confirmed{{b.generation, b.workload_identity, std::move(*properties), supervisor, b.session_id, b.outer_fence,
                                ::getpid() == 1, b.resource_claims, std::move(audit)}};
  }

  void leave(int code) {
    std::call_once(left_, [&] { exit_code_.set_value(code); });
  }

  Launch launch_;
  Mechanisms mechanisms_;
  std::shared_ptr<DnsStub> dns_;
  std::shared_ptr<SocketHandover> handover_ = std::make_shared<SocketHandover>();
  asio::io_context& io_;
  SleepingScheduler config_{2};
  caf::actor_system system_;
  Boundary boundary_;
  std::mutex channel_mutex_;
  std::unique_ptr<ChannelServer> channel_;
  std::promise<int> exit_code_;
  std::once_flag left_;
};

/// Kernel first, then what this process is, then as private as it has to be.
absl::StatusOr<isolation::Posture> take_posture() {
  if (auto landlock = isolation::probe_landlock(); !landlock.ok()) return landlock.status();
  auto posture = isolation::read_posture();
  if (!posture.ok()) return posture.status();
  if (auto status = isolation::check_posture(*posture); !status.ok()) return status;
  if (auto status = isolation::harden_self(); !status.ok()) return status;
  return posture;
}

std::vector<std::uint16_t> reserved_ports(const boundary::Listener& listener) {
  const auto* tcp = std::get_if<boundary::TcpListener>(&listener.endpoint);
  if (tcp == nullptr) return {};
  return {static_cast<std::uint16_t>(std::strtoul(tcp->address.substr(tcp->address.rfind(':') + 1).c_str(), nullptr, 10))};
}

}  // namespace

int run(const RuntimeOptions& options) {
  ::signal(SIGPIPE, SIG_IGN);
  sigset_t handled;
  sigemptyset(&handled);
  sigaddset(&handled, SIGTERM);
  sigaddset(&handled, SIGINT);
  ::pthread_sigmask(SIG_BLOCK, &handled, nullptr);  // before any thread: all inherit it, one waits for them

  auto posture = take_posture();
  if (!posture.ok()) return fail(kExitPosture, std::string(posture.status().message()));
  auto launch = read_launch(options.bootstrap_path, *posture);
  if (!launch.ok()) return fail(kExitBootstrap, std::string(launch.status().message()));
  if (launch->bootstrap.peer_names == boundary::PeerNames::anyip && !posture->anyip) {
    return fail(kExitPosture, "bootstrap declares peer_names anyip, but a documentation address can not be bound here");
  }
  if (auto status = check_pid_limit(launch->bootstrap.require_pid_limit); !status.ok())
    return fail(kExitPosture, std::string(status.message()));
  auto mechanisms = start_mechanisms(std::move(*posture), reserved_ports(launch->bootstrap.listener));
  if (!mechanisms.ok()) return fail(kExitPosture, std::string(mechanisms.status().message()));
  if (auto status = mechanisms->audit.complete(); !status.ok()) return fail(kExitPosture, std::string(status.message()));
  if (auto status = consume(options.bootstrap_path, *launch); !status.ok()) return fail(kExitBootstrap, std::string(status.message()));

  // These outlive everything that could still post to them: the process ends by _exit.
  auto& io = *new asio::io_context{1};
  auto* guard = new asio::executor_work_guard<asio::io_context::executor_type>(io.get_executor());
  static_cast<void>(guard);
  auto dns = DnsStub::bind(io, kResolverAddress, kResolverPort);
  if (!dns.ok()) return fail(kExitPosture, std::string(dns.status().message()));
  std::thread{[&io] { io.run(); }}.detach();
  auto& runtime = *new Runtime{std::move(*launch), std::move(*mechanisms), std::move(*dns), io};
  if (auto status = runtime.start(); !status.ok()) return fail(kExitListen, std::string(status.message()));
  std::thread{[&runtime, handled] {
    for (int number = 0;;) {
      if (::sigwait(&handled, &number) == 0) runtime.signalled(number);
    }
  }}.detach();
  return runtime.wait();
}

int capability_probe() {
  const auto print = [](bool qualified, const isolation::Posture* p, const isolation::AuditEvidence* a, const std::string& failure) {
    const auto flag = [](bool on) { return on ? "true" : "false"; };
    std::string out = fmt::format(R"({{"qualified":{})", flag(qualified));
    if (p) {
      out += fmt::format(
          R"(,"uid":{},"gid":{},"capabilities_zero":{},"landlock_abi":{},"signal_mode":"{}","namespace_profile":"{}","peer_names":"{}")",
          p->uid, p->gid, flag(p->capabilities.empty()), p->landlock.abi, p->landlock.scopes_signals() ? "landlock_scope" : "mediated",
          p->loopback_only ? "loopback" : "routed", p->anyip ? "anyip" : "notified");
      out += R"(,"groups":[)";
      for (std::size_t i = 0; i < p->groups.size(); ++i) out += fmt::format("{}{}", i ? "," : "", p->groups[i]);
      out += "]";
    }
    if (a) {
      const auto& s = a->seccomp;
      out += fmt::format(
          R"(,"no_new_privileges":{},"sandbox_dumpable":{},"child_core_limit_zero":{},"landlock_allow_deny":{},"seccomp_notification":{})",
          flag(a->no_new_privileges), flag(a->sandbox_dumpable), flag(a->core_limit_zero), flag(a->landlock_allow_deny),
          flag(s.new_listener && s.notification_round_trip));
      out += fmt::format(R"(,"seccomp_addfd_send":{},"task_memory_copy":{},"socket_virtualization":{},"socket_loopback_confinement":{})",
                         flag(s.addfd_send), flag(s.task_memory_read), flag(s.retained_socket_operation), flag(a->loopback_confinement));
      out += fmt::format(R"(,"udp_dns_round_trip":{},"tcp_dns_round_trip":{},"tcp_allow_round_trip":{},"tcp_deny_round_trip":{})",
                         flag(a->udp_dns_round_trip), flag(a->tcp_dns_round_trip), flag(a->tcp_allow_round_trip),
                         flag(a->tcp_deny_round_trip));
      out +=
          fmt::format(R"(,"wait_killable_recv":{},"task_memory_writes_disabled":{},"seccomp_listener_mode":"{}","kernel_release":"{}")",
                      flag(s.cancellation), flag(s.task_memory_writes_disabled),
                      a->cancellation_mode == isolation::CancellationMode::Killable ? "killable" : "legacy_read_only", a->kernel_release);
    }
    if (!failure.empty()) out += fmt::format(R"(,"failure":"{}")", failure);
    fmt::print("{}}}\n", out);
    std::fflush(stdout);
    return qualified ? 0 : kExitPosture;
  };
  ::signal(SIGPIPE, SIG_IGN);
  auto posture = take_posture();
  if (!posture.ok()) {
    spdlog::error("{}", std::string(posture.status().message()));
    return print(false, nullptr, nullptr, std::string(posture.status().message()));
  }
  const isolation::Posture seen = *posture;
  auto mechanisms = start_mechanisms(std::move(*posture), {});
  if (!mechanisms.ok()) return print(false, &seen, nullptr, std::string(mechanisms.status().message()));
  auto& kept = *new Mechanisms{std::move(*mechanisms)};
  const auto status = kept.audit.complete();
  return print(status.ok(), &seen, &kept.audit, std::string(status.message()));
}

int capability_probe_launch(unsigned uid, unsigned gid) {
  if (::setgroups(0, nullptr) != 0) return fail(kExitPosture, "groups can not be dropped");
  for (int capability = 0; ::prctl(PR_CAPBSET_READ, capability, 0, 0, 0) >= 0; ++capability) ::prctl(PR_CAPBSET_DROP, capability, 0, 0, 0);
  ::prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0);
  if (::setresgid(gid, gid, gid) != 0 || ::setresuid(uid, uid, uid) != 0) return fail(kExitPosture, "identity can not be taken");
  return capability_probe();
}

}  // namespace openshell::sandbox
