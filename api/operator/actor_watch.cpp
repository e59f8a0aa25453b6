#include "api/operator/actor_watch.hpp"

#include <algorithm>
#include <boost/asio/post.hpp>
#include <utility>

#include "actors/gateway/relay_pipe.hpp"
#include "actors/introspection/shown_text.hpp"
#include "observability/text.hpp"

namespace openshell::api {
namespace {

constexpr std::chrono::milliseconds kFirstLook{50};  // while somebody waits for first snapshots

ActorMap::Time now() { return std::chrono::steady_clock::now(); }

}  // namespace

ActorWatch::ActorWatch(boost::asio::any_io_executor executor, std::shared_ptr<ActorSource> source, const std::string& gateway_id,
                       Times times)
    : executor_{executor}, source_{std::move(source)}, gateway_entry_{cat("gateway:", gateway_id)}, times_{times}, timer_{executor} {
  map_.ensure(gateway_entry_, ProcessKind::gateway, {}, now());
}

/// `then` on our thread, unless this is gone.
template <class T>
std::function<void(absl::StatusOr<T>)> ActorWatch::here(std::function<void(absl::StatusOr<T>)> then) {
  return [weak = weak_from_this(), executor = executor_, then = std::move(then)](absl::StatusOr<T> answer) {
    boost::asio::post(executor, [weak, then, answer = std::move(answer)]() mutable {
      const auto self = weak.lock();
      if (self && !self->stopped_) then(std::move(answer));
    });
  };
}

ActorWatch::Ticket ActorWatch::watch() {
  ++watchers_;
  start();
  // The ticket may be the last thing that a coroutine lets go, on our thread or at the end of everything.
  return {nullptr, [weak = weak_from_this()](void*) {
            if (const auto self = weak.lock()) {
              --self->watchers_;
              self->last_watcher_ = now();
            }
          }};
}

void ActorWatch::start() {
  if (stopped_) return;
  if (!running_) {
    running_ = true;
    sessions_known_ = false;
    for (auto& [id, supervisor] : supervisors_) supervisor.settled = supervisor.feed != nullptr;
    tick();
  }
}

void ActorWatch::stop() {
  stopped_ = true;
  timer_.cancel();
  close_all("the gateway ends");
}

void ActorWatch::when_known(std::function<void()> then) {
  waiters_.push_back({now() + times_.first, std::move(then)});
  if (!running_) return start();
  timer_.expires_after(std::chrono::milliseconds{0});  // look at once, and soon again
  timer_.async_wait([weak = weak_from_this()](const boost::system::error_code& failed) {
    if (const auto self = weak.lock(); self && !failed) self->tick();
  });
}

void ActorWatch::tick() {
  if (stopped_ || !running_) return;
  const auto at = now();
  if (watchers_ == 0 && waiters_.empty() && at - last_watcher_ >= times_.linger) {
    close_all("no watcher");
    running_ = false;
    return;
  }
  source_->changes(own_seq_, here<ActorChanges>([this](auto changes) { take_own(std::move(changes)); }));
  source_->sessions(here<std::map<std::string, std::string>>([this](auto sessions) { take_sessions(std::move(sessions)); }));
  for (auto& [id, supervisor] : supervisors_) {
    if (supervisor.feed) supervisor.feed->sweep(at);
  }
  map_.sweep(at);
  tell_known();
  timer_.expires_after(waiters_.empty() ? times_.pace : std::min(times_.pace, kFirstLook));
  timer_.async_wait([weak = weak_from_this()](const boost::system::error_code& failed) {
    if (const auto self = weak.lock(); self && !failed) self->tick();
  });
}

/// Two questions may be on their way at once, and the directory's number never falls: what is not newer is the older answer.
void ActorWatch::take_own(absl::StatusOr<ActorChanges> changes) {
  if (!changes.ok()) return;
  auto* process = map_.ensure(gateway_entry_, ProcessKind::gateway, {}, now());
  if (process == nullptr || changes->seq <= own_seq_) return;
  own_seq_ = changes->seq;
  map_.apply(*process, *changes, now());
}

void ActorWatch::refresh_own(std::function<void()> then) {
  source_->changes(own_seq_, here<ActorChanges>([this, then = std::move(then)](auto changes) {
                     take_own(std::move(changes));
                     map_.sweep(now());
                     then();
                   }));
}

void ActorWatch::take_sessions(absl::StatusOr<std::map<std::string, std::string>> sessions) {
  if (!sessions.ok() || !running_) return;
  sessions_known_ = true;
  for (auto it = supervisors_.begin(); it != supervisors_.end();) {
    const auto current = sessions->find(it->first);
    if (current != sessions->end() && current->second == it->second.session) {
      ++it;
      continue;
    }
    if (it->second.feed) it->second.feed->close("its session ended");
    map_.ended(supervisor_entry(it->first), now());
    map_.ended(sandbox_entry(it->first), now());
    it = supervisors_.erase(it);
  }
  for (const auto& [id, session] : *sessions) {
    auto& supervisor = supervisors_[id];
    supervisor.session = session;
    if (!supervisor.sandbox.empty() || std::exchange(supervisor.naming, true)) continue;
    source_->name_of(id, here<std::string>([this, id](auto name) {
                       const auto it = supervisors_.find(id);
                       if (it == supervisors_.end()) return;
                       it->second.naming = false;
                       if (!name.ok()) return;
                       it->second.sandbox = *name;
                       map_.ensure(supervisor_entry(id), ProcessKind::supervisor, *name, now());
                       open_more();
                     }));
  }
  open_more();
}

void ActorWatch::open_more() {
  if (!running_) return;
  for (auto& [id, supervisor] : supervisors_) {
    if (opening_ >= kMaxOpening) return;
    if (supervisor.feed || supervisor.opening || supervisor.refused || supervisor.sandbox.empty() || now() < supervisor.not_before)
      continue;
    open(id);
  }
}

void ActorWatch::open(const std::string& id) {
  auto& supervisor = supervisors_[id];
  supervisor.opening = true;
  ++opening_;
  source_->open(id, here<std::shared_ptr<gateway::RelayEnd>>(
                        [this, id, session = supervisor.session](auto relay) { opened(id, session, std::move(relay)); }));
}

void ActorWatch::opened(const std::string& id, const std::string& session, absl::StatusOr<std::shared_ptr<gateway::RelayEnd>> relay) {
  --opening_;
  const auto it = supervisors_.find(id);
  if (it == supervisors_.end() || it->second.session != session || !running_) {
    if (relay.ok()) (*relay)->abort(absl::CancelledError("no watcher"));
    if (it != supervisors_.end() && it->second.session == session) it->second.opening = false;
    return open_more();
  }
  auto& supervisor = it->second;
  supervisor.opening = false;
  if (!relay.ok()) {
    supervisor.settled = true;
    supervisor.not_before = now() + times_.after_end;
    const auto why = std::string{relay.status().message()};
    supervisor.refused = why.find("unsupported internal service") != std::string::npos;
    note(id, why);
    return open_more();
  }
  supervisor.feed = std::make_shared<ActorFeed>(executor_, *relay, map_, id, supervisor.sandbox,
                                                [this, id](const absl::Status& why) { feed_ended(id, why); });
  supervisor.feed->run();
  open_more();
}

void ActorWatch::feed_ended(const std::string& id, const absl::Status& why) {
  const auto it = supervisors_.find(id);
  if (it == supervisors_.end()) return;
  it->second.feed.reset();
  it->second.settled = true;
  it->second.not_before = now() + (absl::IsInvalidArgument(why) ? times_.after_error : times_.after_end);
  note(id, std::string{why.message()});
}

void ActorWatch::note(const std::string& id, const std::string& text) {
  const auto it = supervisors_.find(id);
  if (it == supervisors_.end()) return;
  if (auto* process = map_.ensure(supervisor_entry(id), ProcessKind::supervisor, it->second.sandbox, now()))
    map_.say(*process, shown_text(text), 0);
}

bool ActorWatch::all_known() const {
  if (!sessions_known_ || own_seq_ == 0) return false;
  return std::all_of(supervisors_.begin(), supervisors_.end(), [this](const auto& entry) {
    if (entry.second.settled || entry.second.refused) return true;
    const auto process = map_.processes().find(supervisor_entry(entry.first));
    return process != map_.processes().end() && !process->second.actors.empty();
  });
}

void ActorWatch::tell_known() {
  const auto at = now();
  const bool known = all_known();
  std::vector<std::function<void()>> ready;
  std::erase_if(waiters_, [&](Waiter& waiter) {
    if (!known && at < waiter.until) return false;
    ready.push_back(std::move(waiter.then));
    return true;
  });
  if (!ready.empty()) last_watcher_ = at;
  for (const auto& then : ready) then();
}

void ActorWatch::inspect(const std::string& process, const std::string& actor, ActorFeed::Then then) {
  if (process == gateway_entry_) return source_->inquire(actor, here<ActorSnapshot>(std::move(then)));
  constexpr std::string_view kSupervisor = "supervisor:";
  const auto it = process.starts_with(kSupervisor) ? supervisors_.find(process.substr(kSupervisor.size())) : supervisors_.end();
  if (it == supervisors_.end() || !it->second.feed)
    return then(absl::NotFoundError("only actors of the gateway and of watched supervisors can be asked"));
  it->second.feed->inspect(actor, std::move(then));
}

void ActorWatch::close_all(const std::string& why) {
  for (auto& [id, supervisor] : supervisors_) {
    if (supervisor.feed) supervisor.feed->close(why);
    supervisor.feed.reset();
    supervisor.settled = false;
  }
}

}  // namespace openshell::api
