#include "tests/model/explorer/stage.hpp"

#include <algorithm>

namespace openshell::model {

Stage::Stage()
    : system_{config_},
      scheduler_{&dynamic_cast<caf::scheduler::test_coordinator&>(system_.scheduler())},
      clock_{&dynamic_cast<caf::detail::test_actor_clock&>(system_.clock())} {}

Stage::~Stage() {
  end();
  system_.await_actors_before_shutdown(false);
}

void Stage::begin(Chart* chart) {
  end();
  chart_ = chart;
  began_ = clock_now();
}

void Stage::end() {
  kill_all();
  chart_ = nullptr;
}

void Stage::keep(const caf::actor& actor, std::string name) {
  names_[actor.id()] = name;
  const auto found = actors_.find(name);
  if (found != actors_.end()) {
    found->second = actor;  // its predecessor is dead
  } else {
    actors_.emplace(std::move(name), actor);
  }
}

const caf::actor* Stage::named(const std::string& name) const {
  const auto found = actors_.find(name);
  return found == actors_.end() ? nullptr : &found->second;
}

void Stage::kill_all() {
  auto* chart = std::exchange(chart_, nullptr);  // nothing of it belongs to the schedule
  for (auto& [name, actor] : actors_) caf::anon_send_exit(actor, caf::exit_reason::kill);
  run_all();
  actors_.clear();
  names_.clear();
  clock_->cancel_all();
  run_all();
  chart_ = chart;
}

const std::string& Stage::name_of(caf::resumable* job) {
  static const std::string none;
  const auto* actor = dynamic_cast<caf::scheduled_actor*>(job);
  if (actor == nullptr) return none;
  const auto found = names_.find(actor->id());
  return found == names_.end() ? none : found->second;
}

std::size_t Stage::runnable(const std::string& stalled) {
  const auto& jobs = scheduler_->jobs;
  if (stalled.empty()) return jobs.size();
  return static_cast<std::size_t>(std::count_if(jobs.begin(), jobs.end(), [&](caf::resumable* job) { return name_of(job) != stalled; }));
}

void Stage::run(std::size_t index, const std::string& stalled) {
  auto& jobs = scheduler_->jobs;
  auto at = jobs.begin();
  for (; at != jobs.end(); ++at) {
    if (!stalled.empty() && name_of(*at) == stalled) continue;
    if (index-- == 0) break;
  }
  if (at == jobs.end()) return;
  std::rotate(jobs.begin(), at, at + 1);
  if (chart_ != nullptr) {
    if (auto* actor = dynamic_cast<caf::scheduled_actor*>(jobs.front())) draw(*actor);
  }
  scheduler_->run_once();
}

void Stage::draw(caf::scheduled_actor& actor) {
  const auto* element = actor.mailbox().peek();
  const auto to = names_.find(actor.id());
  if (element == nullptr || to == names_.end()) return;
  const auto& content = element->content();
  std::string label = element->mid.is_response() ? "answer" : "message";
  if (content.size() > 0 && content.match_element<caf::atom_value>(0)) {
    label = caf::to_string(content.get_as<caf::atom_value>(0));
    label.erase(std::remove(label.begin(), label.end(), '\''), label.end());
  } else if (content.size() > 0 && content.match_element<caf::error>(0)) {
    label = "error";
  } else if (content.size() > 0 && content.match_element<caf::down_msg>(0)) {
    label = "down";
  } else if (content.size() > 0 && content.match_element<caf::exit_msg>(0)) {
    label = "exit";
  }
  if (label == "introspect" || label == "report") return;
  std::string from = to->second;
  if (element->sender) {
    const auto sender = names_.find(element->sender->id());
    if (sender != names_.end()) from = sender->second;
  }
  if (label == "run") return;  // an answer that is drawn where it arrives
  chart_->message(chart_now(), from, to->second, label);
}

void Stage::run_all(std::size_t limit) {
  while (!scheduler_->jobs.empty() && limit-- > 0) run(0);
}

Stage::Duration Stage::next_timer() {
  const auto& schedule = clock_->schedule();
  if (schedule.empty()) return Duration::max();
  return std::max(now(), schedule.begin()->first.time_since_epoch() - began_);
}

void Stage::advance_to(Duration at) {
  if (at > now()) {
    clock_->advance_time(at - now());
  } else {
    clock_->advance_time(Duration{0});
  }
}

}  // namespace openshell::model
