// Actors whose handlers a Reporter watches, in virtual time.
#include "actors/introspection/reporter.hpp"

#include "actors/introspection/directory.hpp"
#include "actors/introspection/shown_text.hpp"
#include "tests/model/virtual_time.hpp"

namespace openshell {
namespace {

using namespace std::chrono_literals;
using poke_atom = caf::atom_constant<caf::atom("poke")>;
using push_atom = caf::atom_constant<caf::atom("push")>;
using tick_atom = caf::atom_constant<caf::atom("tick")>;
using look_atom = caf::atom_constant<caf::atom("look")>;
using fill_atom = caf::atom_constant<caf::atom("fill")>;

using Watched = Introspectable::extend<caf::reacts_to<poke_atom>, caf::replies_to<push_atom, std::string>::with<std::string>,
                                       caf::reacts_to<tick_atom>, caf::reacts_to<look_atom>, caf::reacts_to<fill_atom, std::uint32_t>>;

struct WatchedState {
  Reporter reporter;
  std::function<void()> on_poke;
  [[maybe_unused]] inline static const char* name = "watched";
};

Watched::behavior_type watched(Watched::stateful_pointer<WatchedState> self, Directory directory, std::function<void()> on_poke) {
  self->state.reporter = Reporter{std::move(directory), "w", "watched", "root"};
  self->state.on_poke = std::move(on_poke);
  Watched::behavior_type handlers{
      [=](introspect_atom) { return self->state.reporter.complete({}); },
      [=](poke_atom) {
        if (self->state.on_poke) self->state.on_poke();
      },
      [=](push_atom, std::string& text) { return std::move(text) + "!"; },
      [=](tick_atom) {},
      [=](look_atom) { self->state.reporter.disregard(); },
      [=](fill_atom, std::uint32_t count) {
        for (std::uint32_t i = 0; i < count; ++i) self->send(self, poke_atom::value);
      },
  };
  return self->state.reporter.watch(
      self, [] { return ActorSnapshot{}; }, std::move(handlers));
}

class ReporterOf : public test::VirtualTime {
 protected:
  ActorSnapshot shown(const std::string& id = "w") {
    ActorChanges found;
    caf::scoped_actor asker{sys};
    asker->send(directory_, changes_atom::value, std::uint64_t{0});
    run();
    asker->receive([&](ActorChanges& answer) { found = std::move(answer); }, caf::after(0s) >> [] { ADD_FAILURE() << "no answer"; });
    for (const auto& actor : found.actors) {
      if (actor.id == id) return actor;
    }
    ADD_FAILURE() << id << " is not known";
    return {};
  }
  Watched start(std::function<void()> on_poke = {}) { return sys.spawn(watched, Directory{directory_}, std::move(on_poke)); }
  template <class... Parts>
  void tell(const Watched& to, const Parts&... parts) {
    caf::anon_send(to, parts...);
    run();
  }
  /// One message of some actor, the timers that fell due meanwhile, and what the directory has to do then.
  void step() {
    ASSERT_TRUE(sched().has_job());
    sched().run_once();
    sched().advance_time(0ns);
    while (sched().prioritize(directory_)) sched().run_once();
  }
  /// Without letting any actor run.
  ActorSnapshot of_now(const std::string& id) {
    const auto& entries = caf::actor_cast<DirectoryView::stateful_pointer<DirectoryState>>(directory_)->state.entries;
    const auto found = entries.find(id);
    return found == entries.end() ? ActorSnapshot{} : found->second.snapshot;
  }
  std::uint64_t reports() { return shown("directory").handled; }

  DirectoryView directory_ = sys.spawn(directory);
};

TEST_F(ReporterOf, ACT_41_EveryMessageIsCountedByItsKind) {
  const auto actor = start();
  tell(actor, poke_atom::value);
  EXPECT_EQ(shown().rates, (std::map<std::string, double>{{"poke", 1}})) << "the first after a silence counts as one a second";
  for (int i = 0; i < 30; ++i) caf::anon_send(actor, poke_atom::value);
  for (int i = 0; i < 3; ++i) caf::anon_send(actor, push_atom::value, std::string{"x"});
  run();
  advance(1s);
  EXPECT_EQ(shown().rates, (std::map<std::string, double>{{"poke", 30}, {"push", 3}}));
  EXPECT_EQ(shown().handled, 34U);
}

TEST_F(ReporterOf, AnswersComeThrough) {
  const auto actor = start();
  caf::scoped_actor asker{sys};
  asker->send(actor, push_atom::value, std::string{"hello"});
  run();
  asker->receive([](const std::string& text) { EXPECT_EQ(text, "hello!"); }, caf::after(0s) >> [] { ADD_FAILURE() << "no answer"; });
}

TEST_F(ReporterOf, ACT_38_TicksAndQuestionsReportNothing) {
  const auto actor = start();
  tell(actor, poke_atom::value);
  advance(3s);
  const auto before = reports();
  const auto handled = shown().handled;
  for (int i = 0; i < 50; ++i) tell(actor, tick_atom::value), tell(actor, look_atom::value), advance(1s);
  EXPECT_EQ(reports(), before);
  tell(actor, poke_atom::value);
  EXPECT_EQ(shown().handled, handled + 51) << "ticks count with the next report, questions never";
}

// The mailbox knows no times: the age is that of the actor's own message among those that wait.
TEST_F(ReporterOf, ACT_41_TheAgeOfTheOldestMessageIsHowLongTheActorLetItWait) {
  const auto actor = start([this] { sched().clock().current_time += 400ms; });  // each takes so long
  run();
  caf::anon_send(actor, fill_atom::value, std::uint32_t{10});
  step();
  EXPECT_EQ(of_now("w").mailbox, 10U);
  EXPECT_EQ(of_now("w").oldest_ms, 1U) << "they came right now";
  // While they are handled ten more come, behind the answer of the directory after which the next report may go.
  for (int i = 0; i < 4; ++i) step();
  for (int i = 0; i < 10; ++i) caf::anon_send(actor, poke_atom::value);
  for (int i = 0; i < 40 && of_now("w").handled < 11; ++i) step();
  EXPECT_EQ(of_now("w").mailbox, 10U) << "the probe is no message";
  EXPECT_EQ(of_now("w").oldest_ms, 4'000U);
  run();
  advance(2s);
  EXPECT_EQ(shown().mailbox, 0U) << "that nothing waits any more is news";
  EXPECT_EQ(shown().oldest_ms, 0U);
  EXPECT_EQ(shown().handled, 21U);
  EXPECT_EQ(shown().rates.count("probe"), 0U);
}

TEST_F(ReporterOf, OneWithSixtyFiveKindsCountsTheLastAsOther) {
  MessageCounter counter;
  for (std::size_t i = 0; i < kMaxMessageKinds + 5; ++i) {
    auto message = caf::make_message(static_cast<caf::atom_value>(1'000 + i));
    EXPECT_TRUE(counter.count(message.content()));
  }
  const auto rates = counter.take_rates(MessageCounter::TimePoint{} + 1h);
  EXPECT_EQ(rates.size(), kMaxShownRates);
  EXPECT_EQ(rates.at("other"), 6) << "64 kinds, of which the last is all others";
  EXPECT_EQ(counter.total(), kMaxMessageKinds + 5);
}

}  // namespace
}  // namespace openshell
