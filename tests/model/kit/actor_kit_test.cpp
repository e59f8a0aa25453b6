#include "actors/introspection/directory.hpp"
#include "actors/introspection/reporter.hpp"
#include "actors/supervision/child_set.hpp"
#include "actors/supervision/restart_rule.hpp"
#include "tests/model/virtual_time.hpp"

namespace openshell {
namespace {

using namespace std::chrono_literals;
using poke_atom = caf::atom_constant<caf::atom("poke")>;
using die_atom = caf::atom_constant<caf::atom("die")>;
using revive_atom = caf::atom_constant<caf::atom("revive")>;

using Counter = Introspectable::extend<caf::reacts_to<poke_atom>, caf::reacts_to<die_atom>>;

struct CounterState {
  Reporter reporter;
  std::uint64_t pokes = 0;
  ActorSnapshot snapshot() const {
    ActorSnapshot s;
    s.summary = std::to_string(pokes) + " pokes";
    return reporter.complete(s);
  }
  inline static const char* name = "counter";
};

Counter::behavior_type counter(Counter::stateful_pointer<CounterState> self, Directory directory) {
  self->state.reporter = Reporter{directory, "counter", "counter", "root"};
  return {
      [=](introspect_atom) { return self->state.snapshot(); },
      [=](poke_atom) {
        ++self->state.pokes;
        self->state.reporter.note_handled();
        self->state.reporter.touch(self, [self] { return self->state.snapshot(); });
      },
      [=](die_atom) { self->quit(caf::make_error(caf::sec::runtime_error, "told to")); },
  };
}

class Kit : public test::VirtualTime {
 protected:
  std::vector<ActorSnapshot> list(const Directory& from) {
    std::vector<ActorSnapshot> all;
    caf::scoped_actor asker{sys};
    asker->send(from, list_atom::value);  // answered to the mailbox of the asker
    run();
    asker->receive([&](std::vector<ActorSnapshot>& answer) { all = std::move(answer); },
                   caf::after(0s) >> [] { ADD_FAILURE() << "no answer"; });
    return all;
  }
};

// ACT: an actor reports when it changed, at most once a second, and its last change is never lost.
TEST_F(Kit, ReportsAtMostOnceASecondAndNeverLosesTheLastChange) {
  auto dir = sys.spawn(directory);
  auto actor = sys.spawn(counter, dir);
  caf::anon_send(actor, poke_atom::value);
  run();
  ASSERT_EQ(list(dir).size(), 1U);
  EXPECT_EQ(list(dir)[0].summary, "1 pokes");
  for (int i = 0; i < 100; ++i) caf::anon_send(actor, poke_atom::value);
  run();
  EXPECT_EQ(list(dir)[0].summary, "1 pokes") << "a second report within the same second";
  advance(999ms);
  EXPECT_EQ(list(dir)[0].summary, "1 pokes");
  advance(1ms);
  EXPECT_EQ(list(dir)[0].summary, "101 pokes");
  EXPECT_EQ(list(dir)[0].handled, 101U);
  caf::anon_send(dir, forget_atom::value, std::string{"counter"});
  run();
  EXPECT_TRUE(list(dir).empty());
}

TEST(RestartRule, BacksOffDoublingThenEscalatesAndForgivesALongLife) {
  RestartRule rule{OnDeath::restart, {.first_backoff = 100ms, .longest_backoff = 300ms, .deaths = 3, .window = 60s}};
  auto now = RestartRule::TimePoint{};
  for (auto expected : {100ms, 200ms, 300ms}) {
    const auto verdict = rule.died(now += 1s);
    EXPECT_EQ(verdict.action, OnDeath::restart);
    EXPECT_EQ(verdict.after, expected);
  }
  EXPECT_EQ(rule.died(now += 1s).action, OnDeath::escalate);
  const auto later = rule.died(now += 61s);
  EXPECT_EQ(later.action, OnDeath::restart);
  EXPECT_EQ(later.after, 100ms);
  EXPECT_EQ(rule.restarts(), 4U);
}

TEST(RestartRule, FailClosedIsNeverARestart) {
  RestartRule rule{OnDeath::fail_closed};
  EXPECT_EQ(rule.died({}).action, OnDeath::fail_closed);
  EXPECT_EQ(rule.restarts(), 0U);
}

using Root = caf::typed_actor<caf::reacts_to<revive_atom, std::string>, caf::reacts_to<poke_atom>>;
struct RootState {
  ChildSet children;
  Counter child;
  int starts = 0;
  std::vector<OnDeath>* escalated = nullptr;
  inline static const char* name = "root";
};

Root::behavior_type root(Root::stateful_pointer<RootState> self, Directory directory, OnDeath rule, std::vector<OnDeath>* escalated) {
  auto& s = self->state;
  s.escalated = escalated;
  s.children.watch<revive_atom>(
      self, [self](const std::string&, OnDeath action, const caf::error&) { self->state.escalated->push_back(action); });
  s.children.add(self, "counter", RestartRule{rule, {.first_backoff = 100ms, .longest_backoff = 1s, .deaths = 2, .window = 60s}},
                 [self, directory] {
                   ++self->state.starts;
                   return self->state.child = self->spawn(counter, directory);
                 });
  return {
      [=](revive_atom, const std::string& name) { self->state.children.revive(self, name); },
      [=](poke_atom) { self->send(self->state.child, die_atom::value); },
  };
}

TEST_F(Kit, ADeadChildIsStartedAgainAfterItsBackoffUntilItDiesTooOften) {
  std::vector<OnDeath> escalated;
  auto dir = sys.spawn(directory);
  auto top = sys.spawn(root, dir, OnDeath::restart, &escalated);
  run();
  auto& state = dynamic_cast<caf::stateful_actor<RootState, Root::base>&>(*caf::actor_cast<caf::abstract_actor*>(top)).state;
  EXPECT_EQ(state.starts, 1);
  for (int death : {1, 2}) {
    caf::anon_send(top, poke_atom::value);
    run();
    EXPECT_EQ(state.starts, death) << "restarted without backoff";
    advance(100ms * death);
    EXPECT_EQ(state.starts, death + 1);
  }
  caf::anon_send(top, poke_atom::value);
  run();
  advance(10s);
  EXPECT_EQ(state.starts, 3);
  EXPECT_EQ(escalated, std::vector{OnDeath::escalate});
}

TEST_F(Kit, TheDeathOfAFailClosedChildIsHandedUpAtOnce) {
  std::vector<OnDeath> escalated;
  auto top = sys.spawn(root, sys.spawn(directory), OnDeath::fail_closed, &escalated);
  run();
  caf::anon_send(top, poke_atom::value);
  run();
  EXPECT_EQ(escalated, std::vector{OnDeath::fail_closed});
}

}  // namespace
}  // namespace openshell
