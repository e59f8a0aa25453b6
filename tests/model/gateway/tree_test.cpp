// Every actor of the gateway is killed in virtual time; what its restart rule promises is there afterwards.
#include "tests/model/gateway/gateway_fixture.hpp"

namespace openshell::gateway {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class Tree : public Gateway {
 protected:
  void kill(const caf::actor& actor) {
    caf::anon_send_exit(actor, caf::exit_reason::unhandled_exception);
    run();
  }
};

/// What they know is rebuilt from the store at the start of the process: the process ends in order and init starts it again.
TEST_F(Tree, TheDeathOfAnyActorOfTheWholeEndsTheProcess) {
  struct Child {
    const char* name;
    std::function<caf::actor(const TreeActors&)> of;
  };
  const Child children[] = {
      {"directory", [](const TreeActors& all) { return caf::actor_cast<caf::actor>(all.directory); }},
      {"sandbox_bus", [](const TreeActors& all) { return caf::actor_cast<caf::actor>(all.bus); }},
      {"session_registry", [](const TreeActors& all) { return caf::actor_cast<caf::actor>(all.sessions); }},
      {"relay_registry", [](const TreeActors& all) { return caf::actor_cast<caf::actor>(all.relays); }},
      {"compute_reconciler", [](const TreeActors& all) { return caf::actor_cast<caf::actor>(all.compute); }},
      {"sandbox_index", [](const TreeActors& all) { return caf::actor_cast<caf::actor>(all.index); }},
      {"global_configuration", [](const TreeActors& all) { return caf::actor_cast<caf::actor>(all.global); }},
  };
  ASSERT_TRUE(create("box", [](auto& request) { *request.mutable_spec()->mutable_policy() = policy(443); }).ok());
  make_ready("box", one);
  for (const auto& [name, of] : children) {
    fatal.clear();
    kill(of(tree->actors()));
    EXPECT_THAT(fatal, ElementsAre(name));
    restart();  // as init would
    EXPECT_EQ(get("box").metadata().name(), "box") << name;
    EXPECT_EQ(config("box").version(), 1U) << name;
  }
}

TEST_F(Tree, AnOrderedEndIsNoDeath) {
  tree->end();
  run();
  EXPECT_THAT(fatal, IsEmpty());
}

TEST_F(Tree, AnEntityThatDiesIsMadeAgainFromTheStore) {
  ASSERT_TRUE(create("box", [](auto& request) { *request.mutable_spec()->mutable_policy() = policy(443); }).ok());
  ASSERT_TRUE(create("other").ok());
  const auto link = make_ready("box", one);
  const auto before = get("box");
  kill(caf::actor_cast<caf::actor>(entity("box")));
  pass(1s);
  EXPECT_FALSE(link->closed.ok()) << "its supervisor is to introduce itself anew";
  connect("box", one, 2);
  const auto after = get("box");
  EXPECT_EQ(after.metadata().id(), before.metadata().id());
  EXPECT_EQ(after.status().phase(), before.status().phase());
  EXPECT_TRUE(set_policy("box", policy(8443)).ok());
  EXPECT_EQ(config("box").version(), 2U);
  EXPECT_EQ(get("other").metadata().name(), "other");
  EXPECT_THAT(fatal, IsEmpty());
}

TEST_F(Tree, AnEntityThatDiesAgainAndAgainTakesNobodyAlong) {
  ASSERT_TRUE(create("box").ok());
  ASSERT_TRUE(create("other").ok());
  for (int i = 0; i < 8; ++i) {
    kill(caf::actor_cast<caf::actor>(entity("box")));
    pass(5s);
  }
  EXPECT_EQ(get("other").metadata().name(), "other");
  EXPECT_THAT(fatal, IsEmpty());
  restart();
  EXPECT_EQ(get("box").metadata().name(), "box");
}

}  // namespace
}  // namespace openshell::gateway
