#include "programs/supervisor/relays.hpp"

#include <spdlog/spdlog.h>

#include <utility>

#include "egress/loopback_target.hpp"
#include "programs/supervisor/exec_relay.hpp"

namespace openshell::supervisor {
namespace {

constexpr std::string_view kInternalPrefix = "openshell.";
constexpr std::string_view kExecService = "openshell.exec/1";
constexpr std::size_t kMaxServiceText = 128;

}  // namespace

class Bridge : public std::enable_shared_from_this<Bridge> {
 public:
  Bridge(std::shared_ptr<egress::ByteStream> a, std::shared_ptr<egress::ByteStream> b, std::shared_ptr<TimerThread> timers,
         std::function<void()> ended)
      : sides_{std::move(a), std::move(b)}, timers_{std::move(timers)}, ended_{std::move(ended)} {}

  void run() {
    copy(0);
    copy(1);
  }

  void close() {
    std::function<void()> ended;
    {
      const std::lock_guard lock{mutex_};
      if (std::exchange(closed_, true)) return;
      ended = std::move(ended_);
    }
    for (auto& side : sides_) side->reset();
    if (ended) ended();
  }

 private:
  void copy(int from) {
    sides_[from]->read([self = shared_from_this(), from](absl::StatusOr<std::string> bytes) {
      if (!bytes.ok()) return self->close();
      if (bytes->empty()) return self->end(from);
      {
        const std::lock_guard lock{self->mutex_};
        ++self->moves_;
      }
      self->sides_[1 - from]->write(*std::move(bytes), [self, from](const absl::Status& status) {
        if (!status.ok()) return self->close();
        self->copy(from);
      });
    });
  }

  void end(int from) {
    sides_[1 - from]->shutdown_write();
    bool both;
    {
      const std::lock_guard lock{mutex_};
      both = std::exchange(one_ended_, true);
    }
    if (both) return close_softly();
    watch_idle();
  }

  /// Both directions ended in order: the streams end by themselves; what is left after a second is cut.
  void close_softly() {
    timers_->after(std::chrono::seconds{1}, [self = shared_from_this()] { self->close(); });
  }

  void watch_idle() {
    std::uint64_t before;
    {
      const std::lock_guard lock{mutex_};
      if (closed_) return;
      before = moves_;
    }
    timers_->after(Relays::kOneSidedIdle, [weak = weak_from_this(), before] {
      auto self = weak.lock();
      if (!self) return;
      bool idle;
      {
        const std::lock_guard lock{self->mutex_};
        idle = self->moves_ == before;
      }
      if (idle) {
        self->close();
      } else {
        self->watch_idle();
      }
    });
  }

  const std::shared_ptr<egress::ByteStream> sides_[2];
  const std::shared_ptr<TimerThread> timers_;
  std::mutex mutex_;
  std::function<void()> ended_;
  std::uint64_t moves_ = 0;
  bool one_ended_ = false;
  bool closed_ = false;
};

void Relays::set_ready(bool ready) {
  const std::lock_guard lock{mutex_};
  ready_ = ready;
}

void Relays::keep(const std::string& channel_id, std::function<void()> abort) {
  {
    const std::lock_guard lock{mutex_};
    const auto found = live_.find(channel_id);
    if (found == live_.end()) return;  // it ended already
    found->second.abort = abort;
    if (!found->second.aborted) return;
  }
  abort();
}

void Relays::forget(const std::string& channel_id) {
  const std::lock_guard lock{mutex_};
  live_.erase(channel_id);
}

void Relays::open(RelayRequest request, std::function<void(std::string error)> opened) {
  bool ready;
  {
    const std::lock_guard lock{mutex_};
    ready = ready_;
    if (live_.size() >= kMaxRelays) return opened("too many relays");
    if (live_.count(request.channel_id) != 0) return;  // offered again after a reconnect: it is being served
    live_[request.channel_id] = {};
  }
  const auto fail = [&](std::string text) {
    forget(request.channel_id);
    opened(std::move(text));
  };
  if (const auto found = services_.find(request.service_id); found != services_.end() && !request.tcp) {
    auto& service = found->second;
    {
      const std::lock_guard lock{mutex_};
      ready = service.live < service.limit;
      if (ready) ++service.live;
    }
    if (!ready) return fail("too many relays of " + request.service_id);
    opened({});
    return open_service(request.channel_id, service);
  }
  if (request.service_id.starts_with(kInternalPrefix)) {
    if (request.service_id != kExecService || request.tcp) {
      const std::string_view kind = request.service_id.starts_with("openshell.exec/") && !request.tcp ? "unsupported exec protocol: "
                                                                                                      : "unsupported internal service: ";
      return fail(std::string{kind} + request.service_id.substr(0, kMaxServiceText));
    }
    if (!ready) return fail("sandbox is not ready");
    opened({});
    return open_exec(request.channel_id);
  }
  if (!ready) return fail("sandbox is not ready");
  if (!request.tcp) return open_ssh(request.channel_id, opened);
  open_tcp(request, std::move(opened));
}

void Relays::open_exec(const std::string& channel_id) {
  auto relay = std::make_shared<ExecRelay>(open_relay_(channel_id), boundary_, timers_, ExecRelay::Limits{},
                                           [self = shared_from_this(), channel_id] { self->forget(channel_id); });
  keep(channel_id, [weak = std::weak_ptr{relay}] {
    if (auto alive = weak.lock()) alive->abort();
  });
  relay->run();
}

void Relays::open_service(const std::string& channel_id, Service& service) {
  keep(channel_id, service.serve(open_relay_(channel_id), [self = shared_from_this(), channel_id, &service] {
    {
      const std::lock_guard lock{self->mutex_};
      --service.live;
    }
    self->forget(channel_id);
  }));
}

void Relays::open_tcp(const RelayRequest& request, std::function<void(std::string error)> opened) {
  auto host = egress::loopback_target(request.tcp_host, request.tcp_port);
  if (!host.ok()) {
    forget(request.channel_id);
    return opened(std::string{host.status().message()});
  }
  boundary_->open_once(
      make_uuid(), boundary::LoopbackConnect{*host, request.tcp_port}, std::nullopt,
      [self = shared_from_this(), channel_id = request.channel_id, opened = std::move(opened)](absl::StatusOr<Opened> result) {
        auto connected = result.ok() ? result_as<boundary::PortConnected>(result->response).status() : result.status();
        if (!connected.ok()) {
          self->forget(channel_id);
          return opened(std::string{connected.message()});
        }
        opened({});
        self->bridge(channel_id, std::move(result->stream));
      });
}

void Relays::open_ssh(const std::string& channel_id, const std::function<void(std::string error)>& opened) {
  auto socket = dial_ssh_ ? dial_ssh_() : absl::UnavailableError("this supervisor has no SSH server");
  if (!socket.ok()) {
    forget(channel_id);
    return opened(std::string{socket.status().message()});
  }
  opened({});
  spdlog::info("ssh relay open (channel_id={})", channel_id);
  bridge(channel_id, *std::move(socket));
}

void Relays::bridge(const std::string& channel_id, std::shared_ptr<egress::ByteStream> target) {
  auto made = std::make_shared<Bridge>(open_relay_(channel_id), std::move(target), timers_,
                                       [self = shared_from_this(), channel_id] { self->forget(channel_id); });
  keep(channel_id, [weak = std::weak_ptr{made}] {
    if (auto alive = weak.lock()) alive->close();
  });
  made->run();
}

void Relays::abort(const std::string& channel_id, const std::string& reason) {
  std::function<void()> abort;
  {
    const std::lock_guard lock{mutex_};
    const auto found = live_.find(channel_id);
    if (found == live_.end()) return;
    found->second.aborted = true;
    abort = found->second.abort;
  }
  spdlog::info("relay {} closed by the gateway: {}", channel_id, reason.substr(0, kMaxServiceText));
  if (abort) abort();
}

}  // namespace openshell::supervisor
