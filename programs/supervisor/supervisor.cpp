#include "programs/supervisor/supervisor.hpp"

#include <spdlog/spdlog.h>
#include <caf/all.hpp>

#include <algorithm>
#include <array>
#include <future>
#include <iterator>
#include <random>

#include "actors/introspection/directory.hpp"
#include "actors/outbox/posix_journal_disk.hpp"
#include "actors/supervision/sleeping_scheduler.hpp"
#include "actors/supervisor/log_push.hpp"
#include "actors/supervisor/root.hpp"
#include "api/gateway_client/gateway_client.hpp"
#include "api/gateway_client/gateway_connection.hpp"
#include "api/gateway_client/log_stream.hpp"
#include "api/gateway_client/session_stream.hpp"
#include "egress/engine.hpp"
#include "messages/directory.hpp"
#include "messages/status_error.hpp"
#include "openshell.pb.h"
#include "policy/decision_service.hpp"
#include "programs/supervisor/boundary_adapter.hpp"
#include "programs/supervisor/boundary_client.hpp"
#include "programs/supervisor/decision_log.hpp"
#include "programs/supervisor/decision_relay.hpp"
#include "programs/supervisor/denial_lines.hpp"
#include "programs/supervisor/descriptor_budget.hpp"
#include "programs/supervisor/dns_mediator.hpp"
#include "programs/supervisor/egress_events.hpp"
#include "programs/supervisor/egress_runtime.hpp"
#include "programs/supervisor/event_log.hpp"
#include "programs/supervisor/interception_ca.hpp"
#include "programs/supervisor/launch.hpp"
#include "programs/supervisor/logging.hpp"
#include "programs/supervisor/main_session.hpp"
#include "programs/supervisor/network_acceptor.hpp"
#include "programs/supervisor/policy_local.hpp"
#include "programs/supervisor/readiness.hpp"
#include "programs/supervisor/relays.hpp"
#include "programs/supervisor/ssh/server.hpp"
#include "programs/supervisor/ssh/workload.hpp"
#include "programs/supervisor/startup.hpp"

namespace openshell::supervisor {
namespace {

using namespace std::chrono_literals;
using SteadyTime = std::chrono::steady_clock::time_point;

constexpr int kExitStartup = 1;
constexpr int kExitOutage = 75;
constexpr int kExitStopped = 143;
constexpr auto kMainGrace = 5s;  // SIGTERM to main before the whole boundary is ended
constexpr auto kFlush = 2s;
constexpr std::chrono::milliseconds kFlushWithoutSession{200};
constexpr auto kFirstExitRetry = 250ms;
constexpr auto kLongestExitRetry = 2'000ms;
constexpr auto kReportTimeout = 15s;
constexpr auto kCredentialCheck = 1s;
constexpr std::chrono::milliseconds kIntrospection{2'000};  // the answer of a sandbox, or of one actor

double random_unit() {
  thread_local std::minstd_rand random{std::random_device{}()};
  return std::uniform_real_distribution<double>{0.0, 1.0}(random);
}

/// The whole process: what outlives the actors, in the order in which it is made.
class Process {
 public:
  Process(const Options& options, EventBox& events) : options_{options}, events_{events}, system_{config_} {}

  int run() {
    auto status = prepare();
    if (!status.ok()) return fail(status);
    Startup startup{options_,  system_,      gateway_,
                    boundary_, instance_id_, [this](std::chrono::milliseconds delay) { return events_.stop_within(delay); },
                    {}};
    // Roots are parsed and a CA is made while others are waited for: half of the time that this start takes.
    auto engine = std::async(std::launch::async, [this] { return make_engine(boundary_->descriptor()); });
    const auto introduced = startup.introduce();
    if (status = engine.get(); !status.ok()) return end(fail(status));
    auto started = introduced.ok() ? startup.run(*runtime_, public_ca_, [this] { serve(); }) : absl::StatusOr<Started>{introduced};
    if (!started.ok()) {
      if (started.status().code() == absl::StatusCode::kCancelled) return end(kExitStopped);
      return end(fail(started.status()));
    }
    start_actors(*started);
    return end(loop());
  }

 private:
  int fail(const absl::Status& status) {
    spdlog::error("{}", std::string{status.message()});
    return kExitStartup;
  }

  Reporter reporter(const char* name) const { return Reporter{directory_, name, name, "supervisor"}; }

  absl::Status prepare() {
    auto launch = load_launch(options_);
    if (!launch.ok()) return launch.status();
    instance_id_ = make_uuid();
    tokens_ = std::make_shared<api::TokenSlots>(to_tokens(launch->auth));
    if (!options_.ssh_socket.empty()) {
      auto key = SshHostKey::make();
      if (!key.ok()) return key.status();
      ssh_key_ = *std::move(key);
    }
    auto connection = api::GatewayConnection::make({options_.endpoint, options_.gateway_ca, options_.tls_server_name, options_.sandbox_id,
                                                    options_.sandbox_name, instance_id_, ssh_key_ ? ssh_key_->fingerprint() : ""},
                                                   tokens_);
    if (!connection.ok()) return connection.status();
    connection_ = *std::move(connection);
    directory_ = system_.spawn(directory);
    gateway_ = system_.spawn(api::gateway_client, connection_);
    logs_ = std::make_shared<LogQueue>();
    start_logging({options_.log_level, options_.log_dir, options_.push_level}, logs_);
    log_push_options_.queue = logs_;
    log_push_options_.transport = std::make_shared<api::LogStream>(connection_);
    log_push_ = system_.spawn(log_push, log_push_options_, reporter("log_push"));
    logs_->on_fill([actor = log_push_](bool urgent) { caf::anon_send(actor, wake_atom::value, urgent); });
    boundary_ = BoundaryClient::make(std::move(launch->descriptor),
                                     [tokens = tokens_] { return tokens->sandbox_authorization(std::chrono::system_clock::now()); },
                                     instance_id_, timers_, {});
    return absl::OkStatus();
  }

  absl::Status make_engine(const boundary::Descriptor& descriptor) {
    denials_ = std::make_shared<DenialQueue>();
    event_log_ = std::make_shared<EventLog>(log_events);
    egress::EngineOptions engine;
    engine.sandbox_id = options_.sandbox_id;
    engine.state_dir = options_.state_dir;
    engine.resolvers = options_.resolvers;
    engine.max_streams = max_streams_ = budget_descriptors(engine.max_streams);
    engine.decisions = decisions_;
    engine.local_api = std::make_shared<PolicyLocal>(proposals_at_gateway(), denial_lines_, timers_, PolicyLocal::Limits{});
    auto ca = make_interception_ca(options_.additional_ca_bundle);
    if (!ca.ok()) return ca.status();
    engine.additional_ca_bundle_pem = ca->additional_pem;
    engine.ca = ca->authority;
    public_ca_ = std::move(ca->published);
    auto made = egress::Engine::create(std::move(engine), std::make_shared<EgressEvents>(event_log_, denials_, endpoints_, denial_lines_));
    if (!made.ok()) return made.status();
    engine_ = *std::move(made);
    std::optional<egress::IpAddress> host_gateway;
    if (descriptor.host_gateway_ip) {
      auto address = egress::IpAddress::parse(*descriptor.host_gateway_ip);
      if (!address.ok()) return address.status();
      host_gateway = *address;
    }
    runtime_ = std::make_shared<EgressRuntime>(*engine_, host_gateway, endpoints_);
    runtime_->resolve_links_with([client = boundary_](EgressRuntime::Asking how, std::vector<std::string> paths, auto answered) {
      BoundaryChannel::Done done = [answered = std::move(answered)](absl::StatusOr<Opened> answer) mutable {
        answered(answer.ok() ? result_as<boundary::LinksResolved>(answer->response)
                             : absl::StatusOr<boundary::LinksResolved>{answer.status()});
      };
      boundary::ResolveLinks question{std::move(paths)};
      how == EgressRuntime::Asking::once ? client->open_once(make_uuid(), std::move(question), kProbeDeadline, std::move(done))
                                         : client->call(std::move(question), kProbeDeadline, std::move(done));
    });
    return absl::OkStatus();
  }

  [[nodiscard]] PolicyLocal::Gateway proposals_at_gateway() const {
    return {[connection = connection_](v1::SubmitPolicyAnalysisRequest request, auto done) {
              connection->submit_proposals(std::move(request), std::move(done));
            },
            [connection = connection_](auto done) { connection->get_drafts(std::move(done)); }};
  }

  /// Traffic is taken from here on: the generation is published and the boundary confirmed.
  void serve() {
    NetworkAcceptor::Limits limits;
    limits.streams = max_streams_;
    acceptor_ = std::make_shared<NetworkAcceptor>(boundary_, *engine_, timers_, limits);
    handover_ = HandoverLine::make(
        boundary_->descriptor(), [engine = engine_.get()](int fd, auto readable) { engine->watch(fd, std::move(readable)); },
        [acceptor = std::weak_ptr{acceptor_}](const std::string& ticket, const boundary::NetworkConnected& open, auto call) {
          if (const auto alive = acceptor.lock()) alive->take(ticket, open, std::move(call));
        });
    acceptor_->use_line(handover_);
    if (handover_) handover_->start();
    acceptor_->start();
    dns_ = std::make_shared<DnsMediator>(boundary_, *engine_, timers_, DnsMediator::Limits{});
    dns_->start();
  }

  /// Before the session with the gateway begins, which makes the sandbox ready. Without it everything but SSH works.
  void start_ssh() {
    if (!ssh_key_) return;
    auto server = SshServer::start({options_.ssh_socket, ssh_key_, make_ssh_workload(boundary_, main_), {}});
    if (!server.ok()) return spdlog::error("{}", std::string{server.status().message()});
    ssh_server_ = *std::move(server);
  }

  Relays::DialSsh dial_ssh() {
    if (!ssh_server_) return {};
    return [this]() -> absl::StatusOr<std::shared_ptr<egress::ByteStream>> {
      auto socket = dial_ssh_socket(options_.ssh_socket);
      if (!socket.ok()) return socket.status();
      return egress::make_posted_socket_stream(*engine_, socket->release());
    };
  }

  void start_actors(const Started& started) {
    main_ = MainSession::make(boundary_, timers_, options_.interactive, options_.await_attachment, {});
    start_ssh();
    relays_ = std::make_shared<Relays>(
        boundary_, [connection = connection_](const std::string& channel) { return connection->open_relay(channel); }, dial_ssh(), timers_);
    relays_->offer(policy::kDecisionService, [log = decisions_, timers = timers_](auto stream, auto ended) {
      const auto relay = std::make_shared<DecisionRelay>(std::move(stream), log, timers, std::move(ended));
      relay->run();
      return [weak = std::weak_ptr{relay}] {
        if (const auto alive = weak.lock()) alive->abort();
      };
    });
    relays_->set_ready(true);
    relays_->show_actors(actor_sources());
    announce(directory_, "supervisor", "");
    root_ = system_.spawn(root, root_options(started));
    root_->attach_functor([this](const caf::error& reason) {
      if (reason && reason != caf::exit_reason::user_shutdown) actor_died("root");
    });
    boundary_->on_link([actor = root_, engine = engine_.get()](LinkState state) {
      if (state != LinkState::connected) engine->reset_relays();
      caf::anon_send(actor, link_atom::value, state);
    });
    process_id_ = started.process_id;
    main_->started(process_id_);
    wait_for_main();
    watch_credentials(tokens_->renewals());
  }

  /// For watchers at the gateway. Each question is an actor of its own, so that none of ours has to wait for the answer.
  ActorSources actor_sources() {
    ActorSources out;
    out.epoch = std::random_device{}();
    out.epoch = (out.epoch << 32) | std::random_device{}();
    out.actors = [this](ActorSources::Then<ActorChanges> then) {
      ask_directory<ActorChanges>(std::move(then), changes_atom::value, std::uint64_t{0});
    };
    out.inquire = [this](const std::string& id, ActorSources::Then<ActorSnapshot> then) {
      ask_directory<ActorSnapshot>(std::move(then), inquire_atom::value, id);
    };
    out.runtime = [client = boundary_](ActorSources::Then<ActorSources::Runtime> then) {
      client->open_once(make_uuid(), boundary::Introspect{}, kIntrospection,
                        [then = std::move(then)](absl::StatusOr<Opened> answer) { then(runtime_actors(answer)); });
    };
    return out;
  }

  template <class Answer, class... Question>
  void ask_directory(ActorSources::Then<Answer> then, Question... question) {
    system_.spawn(
        [directory = caf::actor_cast<DirectoryView>(directory_), then = std::move(then), question...](caf::event_based_actor* self) {
          self->request(directory, kIntrospection, question...)
              .then([then](Answer& answer) { then(std::move(answer)); },
                    [then](const caf::error&) { then(absl::DeadlineExceededError("the actor does not answer")); });
        });
  }

  std::shared_ptr<const RootOptions> root_options(const Started& started) {
    auto out = std::make_shared<RootOptions>();
    out->directory = directory_;
    out->gateway = gateway_;
    out->log_push = log_push_;
    out->logs = log_push_options_;
    out->denials = denials_;
    out->endpoints = endpoints_;
    out->denial_interval = options_.denial_flush_interval;
    out->journal_files = std::make_shared<JournalFiles>(posix_journal_disk(options_.state_dir + "/outbox"), options_.sandbox_id,
                                                        boundary_->descriptor().generation);
    out->journal = open_journal(*out->journal_files);
    out->boundary = {std::make_shared<BoundaryAdapter>(boundary_), runtime_, [this](LinkState state) { events_.push(LinkChanged{state}); }};
    out->publisher = {runtime_, instance_id_, started.running, started.environment, true};
    out->poller.limits.interval = options_.poll_interval;
    out->poller.instance_id = instance_id_;
    out->poller.running = started.running;
    out->poller.environment = started.environment;
    out->poller.random = random_unit;
    out->session.transport = std::make_shared<api::SessionStream>(connection_);
    out->session.relays = relays_;
    out->session.random = random_unit;
    out->session_changed = [this](const std::string& id) { events_.push(SessionChanged{!id.empty()}); };
    out->started = [known = directory_](const std::string& name, const caf::actor&) {
      if (name != "directory" && name != "gateway_client") announce(known, name, "supervisor");
    };
    out->escalate = [this](const std::string& name, OnDeath) { actor_died(name); };
    return out;
  }

  /// It may not be missing. Nothing is allowed from here on; the process ends in order, and the sandbox is ended by us or expires.
  void actor_died(const std::string& name) {
    runtime_->close("the supervisor lost its " + name);
    events_.push(ActorDied{name});
  }

  /// A renewed bearer becomes the connection's by a confirm that carries it; the runtime closes a connection at the expiry of the newest
  /// one it has seen.
  void watch_credentials(std::uint64_t confirmed) {
    const auto renewals = tokens_->renewals();
    if (renewals != confirmed) {
      boundary_->call(boundary::Confirm{}, kProbeDeadline, [](const absl::StatusOr<Opened>& answer) {
        if (!answer.ok()) spdlog::warn("the renewed token was not confirmed: {}", answer.status().ToString());
      });
    }
    timers_->after(kCredentialCheck, [this, renewals] { watch_credentials(renewals); });
  }

  void wait_for_main() {
    boundary_->call(boundary::Wait{process_id_}, std::nullopt, [this](absl::StatusOr<Opened> answer) {
      auto exited = answer.ok() ? result_as<boundary::Exited>(answer->response) : absl::StatusOr<boundary::Exited>{answer.status()};
      events_.push(exited.ok() ? MainExit{exited->status.code(), true} : MainExit{0, false});
    });
  }

  /// Until the process is to end. Returns the exit code that the end leads to.
  int loop() {
    std::optional<SteadyTime> outage;
    while (true) {
      auto event = events_.pop(outage);
      if (!event) {
        spdlog::error("the gateway has been out of reach for {} s: the workload is stopped", options_.outage_limit.count());
        return kExitOutage;
      }
      if (std::holds_alternative<StopSignal>(*event)) return kExitStopped;
      if (const auto* died = std::get_if<ActorDied>(&*event)) {
        spdlog::error("the actor {} died: the supervisor ends", died->name);
        return kExitStartup;
      }
      if (const auto* changed = std::get_if<SessionChanged>(&*event)) {
        if (changed->connected) {
          outage.reset();
          session_up_ = true;
        } else {
          session_up_ = false;
          if (options_.outage_limit.count() > 0) outage = std::chrono::steady_clock::now() + options_.outage_limit;
        }
        update_readiness();
      } else if (const auto* link = std::get_if<LinkChanged>(&*event)) {
        link_up_ = link->state == LinkState::connected;
        relays_->set_ready(link_up_);
        update_readiness();
        if (link->state == LinkState::lost) {
          main_->close("the sandbox is lost");
          spdlog::error("the sandbox is lost");
          return kExitStartup;
        }
      } else if (const auto* exit = std::get_if<MainExit>(&*event)) {
        if (!exit->known) continue;  // the link says what happened
        main_code_ = exit->code;
        main_->exited(exit->code);
        spdlog::info("Process exited: {} [exit_code:{}]", process_id_, exit->code);
        if (!report_main_exit()) return kExitStopped;
        main_->acknowledged();
        main_->drain([this] { events_.push(MainDelivered{}); });
      } else if (std::holds_alternative<MainDelivered>(*event)) {
        if (!finalize_main_exit() || options_.ephemeral) return kExitStopped;
      }
    }
  }

  void update_readiness() {
    if (options_.health_socket.empty()) return;
    if (session_up_ && link_up_) {
      if (!readiness_) readiness_ = ReadinessSocket::open(options_.health_socket);
    } else {
      readiness_.reset();
    }
  }

  /// Marker and report, each until it is done. False: the process is to stop meanwhile.
  bool report_main_exit() {
    if (!options_.main_exit_marker.empty()) {
      if (auto status = write_durably(options_.main_exit_marker, "exit_code=" + std::to_string(*main_code_) + "\n"); !status.ok()) {
        spdlog::error("{}", std::string{status.message()});
        return false;
      }
    }
    if (!until_acknowledged([this](caf::scoped_actor& self) {
          return self->request(gateway_, kReportTimeout, exited_atom::value, static_cast<std::int32_t>(*main_code_));
        }))
      return false;
    main_reported_ = true;
    return true;
  }

  /// The gateway may clean up, or start main anew: its output was delivered to whoever was to have it.
  bool finalize_main_exit() {
    return until_acknowledged([this](caf::scoped_actor& self) { return self->request(gateway_, kReportTimeout, finalize_atom::value); });
  }

  template <class Send>
  bool until_acknowledged(Send send) {
    for (std::chrono::milliseconds wait = kFirstExitRetry;; wait = std::min<std::chrono::milliseconds>(wait * 2, kLongestExitRetry)) {
      caf::scoped_actor self{system_};
      bool done = false;
      send(self).receive([&] { done = true; },
                         [](const caf::error& error) { spdlog::debug("main exit not taken: {}", to_status(error).ToString()); });
      if (done) return true;
      if (events_.stop_within(wait)) return false;
    }
  }

  /// The one way out, whatever led here.
  int end(int code) {
    readiness_.reset();
    if (relays_) relays_->set_ready(false);
    if (root_) caf::anon_send(root_, close_atom::value);
    if (boundary_) {
      boundary_->stop_repairing();  // a sandbox that does not answer now is not waited for
      code = end_boundary(code);
    }
    if (main_code_ && !main_reported_ && gateway_) {
      caf::scoped_actor self{system_};
      self->request(gateway_, patience(kFlush), exited_atom::value, static_cast<std::int32_t>(*main_code_))
          .receive([] {}, [](const caf::error&) {});
    }
    ssh_server_.reset();
    if (acceptor_) acceptor_->stop();
    if (dns_) dns_->stop();
    if (engine_) engine_->shutdown();
    if (handover_) handover_->stop();
    if (event_log_) event_log_->stop();
    flush();  // last: nothing is logged after it
    return code;
  }

  int end_boundary(int code) {
    if (!process_id_.empty() && !boundary_->lost()) {
      if (!main_code_) {
        const bool told = boundary_->call_and_wait(boundary::Signal{process_id_, boundary::ProcessSignal::term}, kMainGrace).ok();
        // An interactive shell ignores SIGTERM; it ends when its terminal hangs up.
        if (told && options_.interactive)
          (void)boundary_->call_and_wait(boundary::Signal{process_id_, boundary::ProcessSignal::hangup}, kMainGrace);
        const auto until = std::chrono::steady_clock::now() + kMainGrace;
        while (told && !main_code_) {
          auto event = events_.pop(until);
          if (!event) break;
          if (const auto* changed = std::get_if<SessionChanged>(&*event)) session_up_ = changed->connected;
          if (const auto* exit = std::get_if<MainExit>(&*event); exit && exit->known) main_code_ = exit->code;
          if (const auto* exit = std::get_if<MainExit>(&*event); exit && !exit->known) break;
        }
      }
    }
    if (root_ && !boundary_->lost()) {
      caf::scoped_actor self{system_};
      self->request(root_, kTerminateDeadline + 1s, stop_atom::value)
          .receive([] { spdlog::info("the sandbox ended"); },
                   [&](const caf::error& error) {
                     spdlog::error("sandbox did not acknowledge terminal state: {}", to_status(error).ToString());
                     if (code == kExitStopped) code = kExitStartup;
                   });
    }
    if (!root_ && acceptor_ && !boundary_->lost()) {  // confirmed, and the launch failed: nothing may be left behind
      (void)boundary_->call_and_wait(boundary::TerminateBoundary{}, kTerminateDeadline);
    }
    return code == kExitStopped && main_code_ ? *main_code_ : code;
  }

  void flush() {
    caf::scoped_actor self{system_};
    const auto ignore = [](const caf::error&) {};
    if (root_) {
      self->request(root_, patience(2 * kFlush + 1s), flush_atom::value).receive([] {}, ignore);
    } else if (log_push_) {
      self->request(log_push_, kFlush, stop_atom::value).receive([] {}, ignore);
    }
  }

  /// How long the end waits for the gateway: a gateway whose session has ended is ending itself, as a rule, and waits for us.
  std::chrono::milliseconds patience(std::chrono::milliseconds with_session) {
    while (const auto event = events_.pop(std::chrono::steady_clock::now())) {
      if (const auto* changed = std::get_if<SessionChanged>(&*event)) session_up_ = changed->connected;
    }
    return session_up_ ? with_session : std::min(with_session, kFlushWithoutSession);
  }

  const Options& options_;
  EventBox& events_;
  SleepingScheduler config_{2};
  std::string instance_id_;
  std::shared_ptr<TimerThread> timers_ = std::make_shared<TimerThread>();
  std::shared_ptr<api::TokenSlots> tokens_;
  std::shared_ptr<api::GatewayConnection> connection_;
  std::shared_ptr<LogQueue> logs_;
  std::shared_ptr<EventLog> event_log_;
  std::shared_ptr<DenialQueue> denials_;
  std::shared_ptr<EndpointBox> endpoints_ = std::make_shared<EndpointBox>();
  std::shared_ptr<DenialLines> denial_lines_ = std::make_shared<DenialLines>();
  std::shared_ptr<DecisionLog> decisions_ = std::make_shared<DecisionLog>();
  PublicCa public_ca_;
  std::size_t max_streams_ = 0;  // as many as descriptors allow
  std::unique_ptr<egress::Engine> engine_;
  std::shared_ptr<EgressRuntime> runtime_;
  std::shared_ptr<BoundaryClient> boundary_;
  std::shared_ptr<HandoverLine> handover_;
  std::shared_ptr<NetworkAcceptor> acceptor_;
  std::shared_ptr<DnsMediator> dns_;
  std::shared_ptr<MainSession> main_;
  std::shared_ptr<const SshHostKey> ssh_key_;
  std::unique_ptr<SshServer> ssh_server_;
  std::shared_ptr<Relays> relays_;
  std::unique_ptr<ReadinessSocket> readiness_;
  std::string process_id_;
  std::optional<int> main_code_;
  bool main_reported_ = false;
  bool session_up_ = false;
  bool link_up_ = true;
  caf::actor_system system_;
  Directory directory_;
  GatewayClient gateway_;
  LogPush log_push_;  // the first; the root knows the one that lives
  LogPushOptions log_push_options_;
  Root root_;
};

}  // namespace

void EventBox::push(ProcessEvent event) {
  {
    const std::lock_guard lock{mutex_};
    if (std::holds_alternative<StopSignal>(event)) stopping_ = true;
    events_.push_back(std::move(event));
  }
  changed_.notify_all();
}

std::optional<ProcessEvent> EventBox::pop(std::optional<std::chrono::steady_clock::time_point> until) {
  std::unique_lock lock{mutex_};
  const auto ready = [this] { return !events_.empty(); };
  if (until) {
    if (!changed_.wait_until(lock, *until, ready)) return std::nullopt;
  } else {
    changed_.wait(lock, ready);
  }
  auto event = std::move(events_.front());
  events_.pop_front();
  return event;
}

bool EventBox::stop_within(std::chrono::milliseconds delay) {
  std::unique_lock lock{mutex_};
  return changed_.wait_for(lock, delay, [this] { return stopping_; });
}

int run_supervisor(const Options& options, EventBox& events) {
  auto process = std::make_unique<Process>(options, events);
  const int code = process->run();
  // The kernel takes the rest: actors and gRPC threads hold nothing that outlives the process, and waiting for them could hang an ordered
  // end.
  std::fflush(nullptr);
  std::_Exit(code);
}

}  // namespace openshell::supervisor
