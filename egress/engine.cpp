#include "egress/engine.hpp"

#include <fcntl.h>

#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>

#include "egress/core.hpp"
#include "egress/local_api.hpp"
#include "egress/pipeline/open.hpp"
#include "egress/relay/relay.hpp"

namespace openshell::egress {
namespace {

constexpr std::size_t kMaxExplaining = 64;        // denied opens that are being explained at once
constexpr std::chrono::seconds kShutdownWait{2};  // for relays to end by themselves
constexpr std::chrono::seconds kSweep{1};         // between two looks at the waits of all relays; shorter limits are a test's

}  // namespace

class Engine::Impl {
 public:
  explicit Impl(std::unique_ptr<Core> core) : core_{std::move(core)}, work_{asio::make_work_guard(*core_->io)} {
    thread_ = std::thread{[this] {
      core_->io->run();
      const std::lock_guard lock{mutex_};
      finished_ = true;
      changed_.notify_all();
    }};
  }

  Core& core() { return *core_; }
  template <class F>
  void post(F&& work) {
    asio::post(*core_->io, std::forward<F>(work));
  }
  /// At once where this is the I/O thread.
  template <class F>
  void run(F&& work) {
    asio::dispatch(*core_->io, std::forward<F>(work));
  }

  void publish(std::shared_ptr<const Generation> generation, absl::AnyInvocable<void(PublishReport)> done);
  void open(OpenIntent intent, std::shared_ptr<ByteStream> stream, absl::AnyInvocable<void(OpenDecision)> decided);
  void serve_proxy_client(const SuppliedIdentity& identity, std::int64_t pid, std::shared_ptr<ByteStream> stream);
  void answer(DnsTransport transport, std::string query, absl::AnyInvocable<void(std::optional<std::string>)> done);
  void watch(int fd, absl::AnyInvocable<bool(int)> readable);
  void shutdown();

 private:
  void start(std::shared_ptr<Relay> relay, bool explained);
  void ended(const std::shared_ptr<Relay>& relay);
  void sweep_later();
  void refresh_dns_counters();

  std::unique_ptr<Core> core_;
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  class Watched;
  std::vector<std::weak_ptr<Watched>> watched_;  // I/O thread
  std::thread thread_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool finished_ = false;
  bool shut_down_ = false;
};

void Engine::Impl::refresh_dns_counters() {
  core_->counters.dns_queries = core_->dns.queries();
  core_->counters.dns_mappings = core_->dns.table().allowed_count();
  core_->counters.dns_denied_mappings = core_->dns.table().denied_count();
  core_->counters.dns_denied_table_full = core_->dns.table().denied_table_full();
}

void Engine::Impl::publish(std::shared_ptr<const Generation> generation, absl::AnyInvocable<void(PublishReport)> done) {
  PublishReport report;
  report.number = generation->number;
  if (!core_->stopping && (!core_->current || generation->number >= core_->current->number)) {
    const auto before = core_->current ? core_->current->number : 0;
    core_->current = generation;
    core_->dns.publish(*generation);
    if (core_->options.local_api) core_->options.local_api->published(generation);
    const std::vector<std::shared_ptr<Relay>> live{core_->relays.begin(), core_->relays.end()};
    for (const auto& relay : live) {
      if (relay->judge(generation)) {
        ++report.kept;
        continue;
      }
      ++report.closed;
      if (relay->closed) continue;
      relay->stale = true;
      auto event = relay->event(EventClass::kNetwork, Disposition::kNone, Severity::kLow);
      event.status_detail = "policy_stale";
      event.message = fmt::format("L7 tunnel closed after policy reload [host:{} port:{} captured_generation:{} current_generation:{}]",
                                  relay->host, relay->port.value, before, generation->number);
      core_->events->emit(std::move(event));
      relay->count(true, "policy_stale");
      if (relay->on_stale) {
        relay->on_stale();
      } else {
        relay->close();
      }
    }
  }
  if (done) done(report);
}

void Engine::Impl::open(OpenIntent intent, std::shared_ptr<ByteStream> stream, absl::AnyInvocable<void(OpenDecision)> decided) {
  OpenContext context{*core_, intent, core_->current, OpenContext::Source::kLiteral, {}, {}, {}, {}, {}};
  const auto refusal = decide_open(context);
  const auto relay = std::make_shared<Relay>(*core_, std::move(stream));
  relay->generation = context.generation;
  relay->host = context.host;
  relay->port = intent.port;
  relay->called_by(intent.identity, intent.pid);
  relay->connection = std::move(context.connection);
  relay->addresses = std::move(context.addresses);
  relay->local = context.source == OpenContext::Source::kPolicyLocal;
  relay->proxy = relay->undecided = context.source == OpenContext::Source::kProxyLocal;
  if (context.source != OpenContext::Source::kLiteral && (!refusal || context.source == OpenContext::Source::kDeniedName)) {
    core_->dns.note_use(intent.address, [core = core_.get()] { return core->current; });
  }
  if (!refusal) {
    if (!relay->proxy) ++core_->counters.opens_allowed;  // of a proxy, what it is asked for counts
    decided(RelayReady{});
    start(relay, false);
    return;
  }
  const auto id = relay->report_denied(*refusal, fmt::format("Transparent TCP denied before relay: {}", refusal->reason));
  const bool explain = refusal->explainable && context.generation && context.generation->denied_http == DeniedHttp::kExplain &&
                       core_->leaves.available() && core_->explaining < kMaxExplaining;
  if (!explain) {
    decided(OpenDenied{refusal->kind, id});
    return;
  }
  relay->explained.emplace(refusal->reason, id);
  decided(RelayReady{});
  start(relay, true);
}

void Engine::Impl::serve_proxy_client(const SuppliedIdentity& identity, std::int64_t pid, std::shared_ptr<ByteStream> stream) {
  if (core_->stopping || core_->relays.size() >= core_->options.max_streams) return stream->reset();
  const auto relay = std::make_shared<Relay>(*core_, std::move(stream));
  relay->proxy = relay->undecided = true;
  relay->called_by(identity, pid);
  start(relay, false);
}

void Engine::Impl::start(std::shared_ptr<Relay> relay, bool explained) {
  core_->relays.insert(relay);
  sweep_later();
  core_->explaining += explained ? 1 : 0;
  core_->counters.live_relays = core_->relays.size();
  auto body = explained      ? run_explained(relay)
              : relay->local ? run_local(relay)
              : relay->proxy ? run_proxy_client(relay)
                             : run_relay(relay);
  asio::co_spawn(*core_->io, std::move(body), [this, relay, explained](const std::exception_ptr& error) {
    if (error) relay->close();
    core_->explaining -= explained ? 1 : 0;
    ended(relay);
  });
}

/// One timer for all waits of all relays, and for looking whether a client is still there.
void Engine::Impl::sweep_later() {
  if (core_->sweeping) return;
  core_->sweeping = true;
  const auto& waits = core_->options.waits;
  core_->sweep.expires_after(
      std::min<std::chrono::milliseconds>({kSweep, waits.idle_connection, waits.request_head, waits.response, waits.body}));
  core_->sweep.async_wait([this](const boost::system::error_code& error) {
    core_->sweeping = false;
    if (error || core_->stopping || core_->relays.empty()) return;
    const auto now = std::chrono::steady_clock::now();
    std::vector<std::shared_ptr<Relay>> late, silent;  // either may end a relay, and with it the set that is walked here
    for (const auto& relay : core_->relays) {
      if (relay->deadline <= now) {
        late.push_back(relay);
      } else if (relay->unwatched) {
        silent.push_back(relay);
      }
    }
    for (const auto& relay : late) relay->time_up();
    for (const auto& relay : silent) watch_client(relay);
    sweep_later();
  });
}

void Engine::Impl::ended(const std::shared_ptr<Relay>& relay) {
  core_->relays.erase(relay);
  core_->counters.live_relays = core_->relays.size();
  if (core_->stopping && core_->relays.empty()) work_.reset();
}

namespace {

/// UDP: the message itself. TCP: nullopt unless the two length bytes say exactly what follows.
std::optional<std::string> unframe(DnsTransport transport, std::string bytes) {
  if (transport == DnsTransport::kUdp) return bytes;
  if (bytes.size() < 2) return std::nullopt;
  const std::size_t declared = std::size_t{static_cast<unsigned char>(bytes[0])} << 8 | static_cast<unsigned char>(bytes[1]);
  if (declared != bytes.size() - 2 || declared > dns::kMaxMessageBytes) return std::nullopt;
  return bytes.substr(2);
}

std::string frame(DnsTransport transport, std::string message) {
  if (transport == DnsTransport::kUdp) return message;
  std::string out{static_cast<char>(message.size() >> 8), static_cast<char>(message.size() & 0xff)};
  return out + message;
}

Task<std::string> answer_one(Core* core, std::string message) {
  co_return co_await core->dns.answer(std::move(message), [core] { return core->current; });
}

}  // namespace

void Engine::Impl::answer(DnsTransport transport, std::string query, absl::AnyInvocable<void(std::optional<std::string>)> done) {
  auto message = unframe(transport, std::move(query));
  if (!message || core_->stopping) return done(std::nullopt);
  asio::co_spawn(*core_->io, answer_one(core_.get(), std::move(*message)),
                 [this, transport, done = std::move(done)](const std::exception_ptr& error, std::string response) mutable {
                   refresh_dns_counters();
                   done(error ? std::nullopt : std::optional{frame(transport, std::move(response))});
                 });
}

/// A descriptor that others read on the I/O thread. Lives in its own wait.
class Engine::Impl::Watched : public std::enable_shared_from_this<Watched> {
 public:
  Watched(asio::io_context& io, int fd, absl::AnyInvocable<bool(int)> readable) : descriptor_{io, fd}, readable_{std::move(readable)} {}

  void wait() {
    descriptor_.async_wait(asio::posix::stream_descriptor::wait_read, [self = shared_from_this()](const boost::system::error_code& error) {
      if (!error && self->readable_(self->descriptor_.native_handle())) self->wait();
    });
  }
  void close() {
    boost::system::error_code ignored;
    descriptor_.close(ignored);
  }

 private:
  asio::posix::stream_descriptor descriptor_;
  absl::AnyInvocable<bool(int)> readable_;
};

void Engine::Impl::watch(int fd, absl::AnyInvocable<bool(int)> readable) {
  const int copy = ::fcntl(fd, F_DUPFD_CLOEXEC, 0);
  if (copy < 0) {
    ::shutdown(fd, SHUT_RDWR);  // its owner sees that, and connects again
    return;
  }
  ::fcntl(copy, F_SETFL, ::fcntl(copy, F_GETFL) | O_NONBLOCK);
  post([this, copy, readable = std::move(readable)]() mutable {
    const auto made = std::make_shared<Watched>(*core_->io, copy, std::move(readable));
    std::erase_if(watched_, [](const auto& one) { return one.expired(); });
    if (core_->stopping) return;
    watched_.push_back(made);
    made->wait();
  });
}

void Engine::Impl::shutdown() {
  if (std::exchange(shut_down_, true)) return;
  post([this] {
    core_->stopping = true;
    core_->sweep.cancel();
    const std::vector<std::shared_ptr<Relay>> live{core_->relays.begin(), core_->relays.end()};
    for (const auto& relay : live) relay->close();
    for (const auto& one : watched_) {
      if (const auto watched = one.lock()) watched->close();
    }
    if (core_->relays.empty()) work_.reset();
  });
  {
    std::unique_lock lock{mutex_};
    changed_.wait_for(lock, kShutdownWait, [this] { return finished_; });
  }
  core_->io->stop();
  thread_.join();
  // What was posted in between is told that it came too late.
  core_->stopping = true;
  core_->io->restart();
  core_->io->poll();
}

absl::StatusOr<std::unique_ptr<Engine>> Engine::create(EngineOptions options, std::shared_ptr<EventSink> events) {
  auto servers = dns::parse_name_servers(options.resolvers);
  if (!servers.ok()) return servers.status();
  auto epoch = dns::next_epoch(options.state_dir, options.sandbox_id);
  if (!epoch.ok()) return epoch.status();
  auto roots = make_upstream_context(options.use_system_roots, options.additional_ca_bundle_pem);
  if (!roots.ok()) return roots.status();
  auto core = std::make_unique<Core>(std::move(options), std::move(events), std::move(*servers), *epoch, std::move(*roots));
  return std::unique_ptr<Engine>{new Engine{std::make_unique<Impl>(std::move(core))}};
}

Engine::Engine(std::unique_ptr<Impl> impl) : impl_{std::move(impl)} {}
Engine::~Engine() { impl_->shutdown(); }
void Engine::shutdown() { impl_->shutdown(); }

void Engine::publish(std::shared_ptr<const Generation> generation, absl::AnyInvocable<void(PublishReport)> done) {
  impl_->post([impl = impl_.get(), generation = std::move(generation), done = std::move(done)]() mutable {
    impl->publish(std::move(generation), std::move(done));
  });
}

void Engine::watch(int fd, absl::AnyInvocable<bool(int)> readable) { impl_->watch(fd, std::move(readable)); }

void Engine::open(OpenIntent intent, std::shared_ptr<ByteStream> stream, absl::AnyInvocable<void(OpenDecision)> decided) {
  impl_->run([impl = impl_.get(), intent = std::move(intent), stream = std::move(stream), decided = std::move(decided)]() mutable {
    impl->open(std::move(intent), std::move(stream), std::move(decided));
  });
}

void Engine::serve_proxy_client(SuppliedIdentity identity, std::int64_t pid, std::shared_ptr<ByteStream> stream) {
  impl_->run([impl = impl_.get(), identity = std::move(identity), pid, stream = std::move(stream)]() mutable {
    impl->serve_proxy_client(identity, pid, std::move(stream));
  });
}

void Engine::reset_relays() {
  impl_->post([impl = impl_.get()] {
    const auto& relays = impl->core().relays;
    const std::vector<std::shared_ptr<Relay>> live{relays.begin(), relays.end()};
    for (const auto& relay : live) relay->close();
  });
}

void Engine::adopt_socket(int fd, absl::AnyInvocable<void(std::shared_ptr<ByteStream>)> adopted) {
  impl_->run([impl = impl_.get(), fd, adopted = std::move(adopted)]() mutable { adopted(make_socket_stream(impl->core().io, fd)); });
}

void Engine::answer(DnsTransport transport, std::string query, absl::AnyInvocable<void(std::optional<std::string>)> done) {
  impl_->post([impl = impl_.get(), transport, query = std::move(query), done = std::move(done)]() mutable {
    impl->answer(transport, std::move(query), std::move(done));
  });
}

EngineCounters Engine::counters() const {
  const auto& from = impl_->core().counters;
  EngineCounters out;
  out.opens_allowed = from.opens_allowed;
  out.opens_denied = from.opens_denied;
  out.requests_allowed = from.requests_allowed;
  out.requests_denied = from.requests_denied;
  out.dns_queries = from.dns_queries;
  out.bytes_up = from.bytes_up;
  out.bytes_down = from.bytes_down;
  out.live_relays = from.live_relays;
  out.dns_mappings = from.dns_mappings;
  out.dns_denied_mappings = from.dns_denied_mappings;
  out.dns_denied_table_full = from.dns_denied_table_full;
  out.pinned_binaries = from.pinned_binaries;
  return out;
}

std::shared_ptr<ByteStream> make_posted_socket_stream(Engine& engine, int fd) {
  return make_posted_socket_stream(engine.impl().core().io, fd);
}
std::shared_ptr<ByteStream> make_socket_stream(Engine& engine, int fd) { return make_socket_stream(engine.impl().core().io, fd); }

}  // namespace openshell::egress
