// The directory in virtual time.
#include "actors/introspection/directory.hpp"

#include "actors/introspection/reporter.hpp"
#include "tests/model/virtual_time.hpp"

namespace openshell {
namespace {

using namespace std::chrono_literals;
using poke_atom = caf::atom_constant<caf::atom("poke")>;
using fail_atom = caf::atom_constant<caf::atom("fail")>;
using look_atom = caf::atom_constant<caf::atom("look")>;

using Worker = Introspectable::extend<caf::reacts_to<poke_atom>, caf::reacts_to<look_atom>, caf::reacts_to<fail_atom, std::string>>;

struct WorkerState {
  Reporter reporter;
  std::uint64_t pokes = 0;
  inline static const char* name = "worker";
};

Worker::behavior_type worker(Worker::stateful_pointer<WorkerState> self, Directory directory, std::string id) {
  self->state.reporter = Reporter{std::move(directory), std::move(id), "worker", "root"};
  const auto snapshot = [self] {
    ActorSnapshot out;
    out.summary = std::to_string(self->state.pokes) + " pokes";
    return out;
  };
  return {
      [=](introspect_atom) { return self->state.reporter.complete(snapshot()); },
      [=](poke_atom) {
        ++self->state.pokes;
        self->state.reporter.note_handled();
        self->state.reporter.touch(self, snapshot);
      },
      [=](look_atom) {},
      [=](fail_atom, const std::string& why) {
        self->state.reporter.note_failed(why);
        self->state.reporter.touch(self, snapshot);
      },
  };
}

class DirectoryOf : public test::VirtualTime {
 protected:
  ActorChanges changes(std::uint64_t since = 0) {
    ActorChanges out;
    caf::scoped_actor asker{sys};
    asker->send(directory_, changes_atom::value, since);
    run();
    asker->receive([&](ActorChanges& answer) { out = std::move(answer); }, caf::after(0s) >> [] { ADD_FAILURE() << "no answer"; });
    return out;
  }
  ActorSnapshot of(const std::string& id) {
    for (const auto& actor : changes().actors) {
      if (actor.id == id) return actor;
    }
    ADD_FAILURE() << id << " is not known";
    return {};
  }
  Worker start(const std::string& id) { return sys.spawn(worker, Directory{directory_}, id); }
  template <class... Parts>
  void tell(const Worker& to, const Parts&... parts) {
    caf::anon_send(to, parts...);
    run();
  }
  std::uint64_t reports() { return of("directory").handled; }

  DirectoryView directory_ = sys.spawn(directory);
};

TEST_F(DirectoryOf, ACT_41_AnActorIsKnownFromItsStartAndSpeaksForItselfThen) {
  announce(directory_, "w", "root");
  run();
  EXPECT_EQ(of("w").kind, "w");
  EXPECT_EQ(of("w").parent, "root");
  const auto actor = start("w");
  tell(actor, poke_atom::value);
  EXPECT_EQ(of("w").summary, "1 pokes");
  EXPECT_EQ(of("w").restarts, 0U);
  announce(directory_, "w", "root");
  run();
  EXPECT_EQ(of("w").summary, "1 pokes") << "an announcement overwrites nothing";
}

TEST_F(DirectoryOf, ACT_41_TenThousandChangesInASecondAreTwoReportsAndSilenceIsNone) {
  const auto actor = start("w");
  for (int i = 0; i < 10'000; ++i) caf::anon_send(actor, poke_atom::value);
  run();
  EXPECT_EQ(reports(), 1U);
  advance(999ms);
  EXPECT_EQ(reports(), 1U);
  advance(1ms);
  EXPECT_EQ(reports(), 2U) << "what came within the second goes when it is over";
  EXPECT_EQ(of("w").handled, 10'000U);
  for (int i = 0; i < 60; ++i) advance(1s);
  EXPECT_EQ(reports(), 2U);
}

// ACT-38: whoever looks changes nothing in who is looked at.
TEST_F(DirectoryOf, ACT_38_LookingCountsNothing) {
  const auto actor = start("w");
  tell(actor, poke_atom::value);
  advance(2s);
  const auto before = of("w");
  const auto reported = reports();
  for (int i = 0; i < 100; ++i) changes(), advance(1s);
  EXPECT_EQ(of("w"), before);
  EXPECT_EQ(reports(), reported);
}

TEST_F(DirectoryOf, AFailureShowsCleanedCutAndCounted) {
  const auto actor = start("w");
  tell(actor, fail_atom::value, "refused:\nBearer abcdefghijklmnop " + std::string(1'000, 'x'));
  const auto shown = of("w");
  EXPECT_EQ(shown.failed, 1U);
  EXPECT_EQ(shown.last_error.find("abcdefgh"), std::string::npos) << shown.last_error;
  EXPECT_EQ(shown.last_error.find('\n'), std::string::npos);
  EXPECT_LE(shown.last_error.size(), 256U);
}

TEST_F(DirectoryOf, AnotherActorUnderTheSameIdIsARestart) {
  auto actor = start("w");
  tell(actor, poke_atom::value);
  caf::anon_send_exit(actor, caf::exit_reason::kill);
  run();
  actor = start("w");
  tell(actor, poke_atom::value);
  EXPECT_EQ(of("w").restarts, 1U);
  advance(1s);
  tell(actor, poke_atom::value);
  EXPECT_EQ(of("w").restarts, 1U);
}

TEST_F(DirectoryOf, ChangesAreThoseSinceTheNumberThatWasGiven) {
  const auto a = start("a");
  tell(a, poke_atom::value);
  tell(start("b"), poke_atom::value);
  const auto all = changes();
  EXPECT_TRUE(all.whole);
  EXPECT_EQ(all.actors.size(), 3U) << "the directory itself is one";
  EXPECT_TRUE(changes(all.seq).actors.empty());
  EXPECT_FALSE(changes(all.seq).whole);
  advance(1s);
  tell(a, poke_atom::value);
  caf::anon_send(directory_, forget_atom::value, std::string{"b"});
  const auto next = changes(all.seq);
  ASSERT_EQ(next.actors.size(), 1U);
  EXPECT_EQ(next.actors[0].id, "a");
  EXPECT_EQ(next.gone, std::vector<std::string>{"b"});
  EXPECT_TRUE(changes(next.seq + 1).whole) << "a number of another directory";
}

TEST_F(DirectoryOf, WhoIsTooFarBehindIsToldEverything) {
  DirectoryState state;
  ActorSnapshot one;
  one.id = "x";
  state.report(one, {});
  const auto before = state.seq;
  for (std::size_t i = 0; i <= kMaxDirectoryGone; ++i) {
    state.report(one, {});
    state.forget("x");
  }
  EXPECT_EQ(state.gone.size(), kMaxDirectoryGone);
  EXPECT_TRUE(state.changes(before).whole);
}

TEST_F(DirectoryOf, KnowsABoundedNumber) {
  DirectoryState state;
  for (std::size_t i = 0; i < kMaxDirectoryEntries + 1; ++i) {
    ActorSnapshot one;
    one.id = std::to_string(i);
    state.report(std::move(one), {});
  }
  EXPECT_EQ(state.entries.size(), kMaxDirectoryEntries);
  EXPECT_EQ(state.refused, 1U);
}

// A person opened one actor: it is asked itself.
TEST_F(DirectoryOf, ACT_41_OneActorMayBeAsked) {
  const auto actor = start("w");
  tell(actor, poke_atom::value);
  tell(actor, poke_atom::value);
  caf::scoped_actor asker{sys};
  asker->send(directory_, inquire_atom::value, std::string{"w"});
  run();
  asker->receive([](const ActorSnapshot& answer) { EXPECT_EQ(answer.summary, "2 pokes") << "not a second old, as the report is"; },
                 caf::after(0s) >> [] { FAIL() << "no answer"; });
}

}  // namespace
}  // namespace openshell
