// Connects through the broker, from a confined program: what the program sees, what the decider was asked, and what neither may change.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <cstdio>
#include <set>
#include <string>

#include "tests/isolation/isolation/sandbox_fixture.hpp"

namespace openshell::isolation::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

/// The number after `key=` in a line of the probe.
double number(const std::string& text, const std::string& key) {
  const auto at = text.find(key + "=");
  return at == std::string::npos ? -1 : std::strtod(text.c_str() + at + key.size() + 1, nullptr);
}

struct Namespace {
  const char* name;
  bool anyip, rootless;
};
/// Milliseconds. A port of the decider says how late its answer comes: x040 is 400 ms. Whatever is to happen before the answer has that
/// long, and what is to happen after it has kAnyTime: a busy machine is no failure.
constexpr double kAnswer = 400, kAnyTime = 10'000;

class Connect : public ::testing::TestWithParam<Namespace> {
 protected:
  void run(const std::function<void()>& body) { in_sandbox({GetParam().anyip, GetParam().rootless}, body); }
  static Workload::Options workload() {
    Workload::Options options;
    options.anyip = GetParam().anyip;
    return options;
  }
};
INSTANTIATE_TEST_SUITE_P(Namespaces, Connect,
                         ::testing::Values(Namespace{"AnyIp", true, false}, Namespace{"Notified", false, false},
                                           Namespace{"RootlessAnyIp", true, true}),
                         [](const auto& param) { return std::string{param.param.name}; });

TEST_P(Connect, IS_36_IS_38_BlockingAllowed) {  // IS-06
  run([] {
    Workload sandbox{workload()};
    const auto result = sandbox.probe({"connect", "203.0.113.10", "1000"});
    EXPECT_TRUE(result.launch.ok()) << result.launch;
    EXPECT_THAT(result.out, HasSubstr("connect=0 ")) << result.err;
    EXPECT_THAT(result.out, HasSubstr("peer=203.0.113.10:1000"));
    EXPECT_THAT(result.out, HasSubstr("second=106"));  // EISCONN
    EXPECT_THAT(result.out, HasSubstr("said='hello 1000' echo=echo!"));
    const auto seen = sandbox.decider.seen();
    EXPECT_EQ(seen.size(), 1u);
    EXPECT_EQ(seen[0].destination.text(), "203.0.113.10:1000");
    EXPECT_FALSE(seen[0].nonblocking);
    EXPECT_TRUE(seen[0].identity.ok()) << seen[0].identity.status();
    EXPECT_EQ(seen[0].identity->executable.path, probe_path());
    EXPECT_EQ(seen[0].identity->executable.sha256.size(), 64u);
    EXPECT_TRUE(seen[0].identity->ancestors.empty());
  });
}

TEST_P(Connect, D13_D41_BlockingDeniedIsEaccesHoweverLate) {  // NET-62
  run([] {
    Workload sandbox{workload()};
    EXPECT_THAT(sandbox.probe({"connect", "203.0.113.10", "2000"}).out, HasSubstr("connect=13 "));
    const auto late = sandbox.probe({"connect", "203.0.113.10", "2040"});
    EXPECT_THAT(late.out, HasSubstr("connect=13 "));
    EXPECT_GE(number(late.out, "connect_ms"), kAnswer - 1);
  });
}

TEST_P(Connect, IS_37_BlockingAllowedLate) {
  run([] {
    Workload sandbox{workload()};
    const auto result = sandbox.probe({"connect", "203.0.113.10", "1040"});
    EXPECT_THAT(result.out, HasSubstr("connect=0 "));
    EXPECT_GE(number(result.out, "connect_ms"), kAnswer - 1);
    EXPECT_THAT(result.out, HasSubstr("said='hello 1040' echo=echo!"));
  });
}

TEST_P(Connect, D13_NonBlockingEarly) {
  run([] {
    Workload sandbox{workload()};
    const auto allowed = sandbox.probe({"connect", "203.0.113.10", "1000", "nonblock"});
    EXPECT_THAT(allowed.out, HasSubstr("said='hello 1000' echo=echo!"));
    EXPECT_THAT(allowed.out, HasSubstr("peer=203.0.113.10:1000"));
  });
}

TEST_P(Connect, IS_37_NonBlockingIsHeldInSynSent) {
  run([] {
    Workload sandbox{workload()};
    constexpr double kNextSyn = 990;  // the kernel sends its next one after a second: the answer alone must have made the connection
    double took = kNextSyn;
    unsigned tries = 0;
    while (took >= kNextSyn && tries < 3) {  // on a busy machine the answer may come that late once
      ++tries;
      const auto result = sandbox.probe({"connect", "203.0.113.10", "1040", "nonblock"});
      SCOPED_TRACE(result.out);
      EXPECT_THAT(result.out, HasSubstr("connect=115 "));  // EINPROGRESS
      EXPECT_LT(number(result.out, "connect_ms"), kAnswer - 1);
      EXPECT_THAT(result.out, HasSubstr("again=114 early=0 so_error=0"));  // EALREADY; no poll event while held
      took = number(result.out, " ms");
      EXPECT_GE(took, kAnswer - 1);
      EXPECT_THAT(result.out, HasSubstr("peer=203.0.113.10:1040 second=0"));
      EXPECT_THAT(result.out, HasSubstr("said='hello 1040' echo=echo!"));
    }
    EXPECT_LT(took, kNextSyn);
    EXPECT_EQ(sandbox.broker->statistics().held, tries);
    EXPECT_EQ(sandbox.decider.seen().size(), tries) << "the second connect must not be asked again";
  });
}

TEST_P(Connect, D13_HeldAndDeniedIsConnectionRefused) {  // NET-62
  run([] {
    Workload sandbox{workload()};
    const auto result = sandbox.probe({"connect", "203.0.113.10", "2040", "nonblock"});
    SCOPED_TRACE(result.out);
    EXPECT_THAT(result.out, HasSubstr("connect=115 "));
    EXPECT_THAT(result.out, HasSubstr("so_error=111"));
    EXPECT_LT(number(result.out, " ms"), kAnyTime);
  });
}

TEST_P(Connect, NET_20_TimesOut) {  // NET-21
  run([] {
    auto options = workload();
    options.open_timeout = std::chrono::milliseconds{700};
    Workload sandbox{options};
    const auto blocking = sandbox.probe({"connect", "203.0.113.10", "3000"});
    EXPECT_THAT(blocking.out, HasSubstr("connect=110 "));
    EXPECT_GE(number(blocking.out, "connect_ms"), 699);
    EXPECT_LT(number(blocking.out, "connect_ms"), kAnyTime);
    const auto held = sandbox.probe({"connect", "203.0.113.10", "3000", "nonblock"});
    EXPECT_THAT(held.out, HasSubstr("so_error=110")) << held.out;
    const auto ends = sandbox.decider.ends();
    EXPECT_EQ(ends.size(), 2u);
    for (const auto& [id, why] : ends) EXPECT_EQ(why, OpenEnd::TimedOut);
    EXPECT_EQ(sandbox.broker->statistics().pending, 0u);
    EXPECT_EQ(sandbox.broker->allow(1).status().code(), absl::StatusCode::kNotFound);
  });
}

TEST_P(Connect, IS_38_IPv6AndMappedForms) {
  run([] {
    Workload sandbox{workload()};
    for (const char* port : {"1000", "1004"}) {
      for (const char* how : {"block", "nonblock"}) {
        const auto v6 = sandbox.probe({"connect", "2001:db8:5::7", port, how});
        EXPECT_THAT(v6.out, HasSubstr(std::string{"peer=2001:db8:5::7:"} + port)) << how;
        EXPECT_THAT(v6.out, HasSubstr("echo=echo!")) << how;
        const auto mapped = sandbox.probe({"connect", "::ffff:203.0.113.10", port, how});
        EXPECT_THAT(mapped.out, HasSubstr(std::string{"peer=::ffff:203.0.113.10:"} + port)) << how;
        EXPECT_THAT(mapped.out, HasSubstr("echo=echo!")) << how;
      }
    }
    EXPECT_EQ(sandbox.decider.seen().back().destination.text(), "203.0.113.10:1004");
    EXPECT_TRUE(sandbox.decider.seen().back().ipv4_mapped);
    EXPECT_EQ(sandbox.broker->statistics().peer_name_misses, 0u);
  });
}

TEST_P(Connect, IS_37_EventLoopIsNotStalled) {
  run([] {
    Workload sandbox{workload()};
    // One destination for all, decided after 400 ms: the shared sink of AnyIP, and one hold each otherwise.
    const auto allowed = sandbox.probe({"parallel", "100", "203.0.113.10", "1040"});
    EXPECT_THAT(allowed.out, HasSubstr("good=100 bad=0 held=100 left=0")) << allowed.out;
    EXPECT_LT(number(allowed.out, "worst_ms"), kAnswer - 1) << allowed.out;
    const auto denied = sandbox.probe({"parallel", "50", "203.0.113.10", "2040"});
    EXPECT_THAT(denied.out, HasSubstr("good=0 bad=50 held=50 left=0")) << denied.out;
    const auto quick = sandbox.probe({"parallel", "100", "203.0.113.10", "1000"});
    EXPECT_THAT(quick.out, HasSubstr("good=100 bad=0")) << quick.out;
    EXPECT_THAT(quick.out, HasSubstr("left=0"));
    EXPECT_EQ(sandbox.decider.failed_allows(), 0);
    EXPECT_EQ(sandbox.broker->statistics().peer_name_misses, 0u);
  });
}

TEST_P(Connect, IS_69_DescriptionIsKept) {
  run([] {
    Workload sandbox{workload()};
    for (const char* port : {"1000", "1005"}) {
      EXPECT_THAT(sandbox.probe({"options", "203.0.113.10", port}).out,
                  HasSubstr("error=0 nodelay=1 keepalive=1 idle=77 timeout=4321 sndbuf=100000 nonblock=0 cloexec=1 edge=1 dup=1"));
      EXPECT_THAT(sandbox.probe({"options", "203.0.113.10", port, "nonblock"}).out,
                  HasSubstr("error=0 nodelay=1 keepalive=1 idle=77 timeout=4321 sndbuf=100000 nonblock=1 cloexec=1 edge=1 dup=1"));
    }
  });
}

TEST_P(Connect, NET_23_ReplacedNumberGetsNothing) {  // NET-24
  run([] {
    Workload sandbox{workload()};
    const auto result = sandbox.probe({"swap", "203.0.113.10", "1060"});
    EXPECT_THAT(result.out, HasSubstr("connect=0 number: peer=-107 original: peer=203.0.113.10:1060")) << result.out;
  });
}

TEST_P(Connect, IS_55_SignalsDuringABlockingConnect) {
  run([] {
    Workload sandbox{workload()};
    const auto interrupted = sandbox.probe({"signal", "203.0.113.10", "1090", "interrupt"});  // at 100 ms
    SCOPED_TRACE(interrupted.out);
    EXPECT_THAT(interrupted.out, HasSubstr("connect=4 "));  // EINTR
    EXPECT_LT(number(interrupted.out, "ms"), 899);
    EXPECT_THAT(interrupted.out, HasSubstr("alarms=1 second=0"));
    const auto restarted = sandbox.probe({"signal", "203.0.113.10", "1090", "restart"});
    EXPECT_THAT(restarted.out, HasSubstr("connect=0 ")) << restarted.out;
    EXPECT_THAT(restarted.out, HasSubstr("alarms=1"));
    EXPECT_THAT(restarted.out, HasSubstr("peer=203.0.113.10:1090"));
    EXPECT_EQ(sandbox.decider.seen().size(), 2u) << "the decision under way was asked again";
  });
}

TEST_P(Connect, R_98_FreezeAnswersEverything) {  // NET-26, RT-52
  run([] {
    Workload sandbox{workload()};
    const auto blocked = sandbox.start_probe({"connect", "203.0.113.10", "3000"});
    const auto held = sandbox.start_probe({"connect", "203.0.113.10", "3001", "nonblock"});
    ASSERT_TRUE(blocked.ok() && held.ok());
    ASSERT_TRUE(sandbox.decider.wait_for_opens(2));
    while (sandbox.broker->statistics().held < 1) ::poll(nullptr, 0, 1);
    sandbox.broker->freeze();
    EXPECT_EQ(sandbox.broker->statistics().pending, 0u);
    EXPECT_TRUE(sandbox.tree.freeze().ok());
    const auto stopped = sandbox.tree.descendants();
    ASSERT_TRUE(stopped.ok());
    for (const auto& process : *stopped)
      EXPECT_TRUE(process.state == 'T' || process.state == 'Z') << process.pid << " is " << process.state;
    EXPECT_TRUE(sandbox.tree.resume().ok());
    // Frozen still: an external connect fails at once, loopback answers.
    EXPECT_THAT(sandbox.probe({"connect", "203.0.113.10", "1000"}).out, HasSubstr("connect=125 "));  // ECANCELED
    EXPECT_THAT(sandbox.probe({"connect", "127.0.0.1", "9"}).out, HasSubstr("connect=111 "));
    sandbox.broker->resume();
    EXPECT_THAT(sandbox.probe({"connect", "203.0.113.10", "1000"}).out, HasSubstr("connect=0 "));
    for (const auto& [id, why] : sandbox.decider.ends()) EXPECT_EQ(why, OpenEnd::Frozen);
  });
}

TEST_P(Connect, NET_23_DisconnectedWhileHeldIsAnotherOpen) {
  run([] {
    Workload sandbox{workload()};
    // The first destination would be allowed after 600 ms, the second is allowed after 100 ms; and an allowed one before a refused one.
    const auto moved = sandbox.probe({"redirect", "203.0.113.10", "1060", "203.0.113.11", "1010"});
    EXPECT_THAT(moved.out, HasSubstr("first=115 other=114 gone=0 again=115 so_error=0 peer=203.0.113.11:1010 said='hello 1010'"))
        << moved.out;
    const auto stolen = sandbox.probe({"redirect", "203.0.113.10", "1040", "203.0.113.11", "2090"});
    EXPECT_THAT(stolen.out, HasSubstr("again=115 so_error=111 peer=-107")) << stolen.out;
    // What was let go of may not have been asked about yet; what a socket was led to has been.
    std::set<std::string> asked;
    for (const auto& one : sandbox.decider.seen()) asked.insert(one.destination.text());
    EXPECT_TRUE(asked.contains("203.0.113.11:1010") && asked.contains("203.0.113.11:2090"));
  });
}

TEST_P(Connect, IS_42_LoopbackConnectThatBlocks) {
  run([] {
    Workload sandbox{workload()};
    const auto blocked = sandbox.start_probe({"full", "7100"});
    ASSERT_TRUE(blocked.ok());
    const auto waiting = [&] {
      const auto all = sandbox.tree.descendants();
      return all.ok() && all->size() == 1;
    };
    ASSERT_TRUE(waiting());
    // Others are served while it blocks, it can be frozen, and it dies with its task.
    EXPECT_THAT(sandbox.probe({"connect", "127.0.0.1", "9"}).out, HasSubstr("connect=111 "));
    sandbox.broker->freeze();
    EXPECT_TRUE(sandbox.tree.freeze().ok());
    EXPECT_TRUE(sandbox.tree.resume().ok());
    sandbox.broker->resume();
    const auto again = sandbox.start_probe({"full", "7101"});
    ASSERT_TRUE(again.ok());
    EXPECT_TRUE(sandbox.tree.terminate(std::chrono::milliseconds{0}).ok());
    EXPECT_THAT(sandbox.probe({"connect", "127.0.0.1", "9"}).out, HasSubstr("connect=111 "));
  });
}

TEST_P(Connect, IS_39_DataIsNotNotified) {
  run([] {
    Workload sandbox{workload()};
    const auto python = sandbox.run({"/usr/bin/python3", "-c",
                                     "import socket,hashlib,threading,os\n"
                                     "s=socket.create_connection(('203.0.113.10',1000)); f=s.makefile('rb'); f.readline()\n"
                                     "data=os.urandom(1<<20)*8\n"
                                     "t=threading.Thread(target=lambda:(s.sendall(data),s.shutdown(socket.SHUT_WR))); t.start()\n"
                                     "back=f.read(); t.join(); print(back==data)\n"});
    EXPECT_EQ(python.out, "True\n") << python.err;
    EXPECT_LT(sandbox.broker->statistics().notifications, 20u) << "8 MiB both ways, and half-close";
  });
}

TEST_P(Connect, Spec_9_7_PendingOpensAreBounded) {
  run([] {
    auto options = workload();
    options.open_timeout = std::chrono::seconds{8};  // all 300 are made within it
    Workload sandbox{options};
    const auto result = sandbox.probe({"parallel", "300", "203.0.113.10", "3000"});
    EXPECT_THAT(result.out, HasSubstr("held=256 left=0")) << result.out;  // the other 44: EAGAIN
    EXPECT_EQ(sandbox.decider.seen().size(), Broker::kMaxPendingOpens);
    EXPECT_EQ(sandbox.broker->statistics().refused_capacity, 300 - Broker::kMaxPendingOpens);
    EXPECT_THAT(sandbox.probe({"connect", "203.0.113.10", "1000"}).out, HasSubstr("connect=0 ")) << "and free again";
  });
}

TEST_P(Connect, RT_67_ReservedPortAtAnyAddress) {  // RT-68
  run([] {
    auto options = workload();
    options.reserved_ports = {1000};
    Workload sandbox{options};
    for (const char* host : {"127.0.0.1", "127.0.0.9", "0.0.0.0", "203.0.113.10", "::1", "::ffff:127.0.0.1"})
      EXPECT_THAT(sandbox.probe({"connect", host, "1000"}).out, HasSubstr("connect=13 ")) << host;
    EXPECT_TRUE(sandbox.decider.seen().empty());
  });
}

TEST_P(Connect, IS_40_LoopbackServersAreNative) {
  run([] {
    Workload sandbox{workload()};
    const auto server = sandbox.start_probe({"server", "7007"});
    ASSERT_TRUE(server.ok());
    for (int i = 0; i < 200; ++i) {
      if (sandbox.probe({"connect", "127.0.0.1", "7007"}).out.starts_with("connect=0 ")) break;
    }
    EXPECT_THAT(sandbox.probe({"connect", "127.0.0.1", "7007"}).out, HasSubstr("connect=0 "));
    EXPECT_THAT(sandbox.probe({"connect", "127.0.0.1", "7007", "nonblock"}).out, HasSubstr("so_error=0"));
    EXPECT_TRUE(sandbox.decider.seen().empty());
  });
}

TEST_P(Connect, IS_36_RealPrograms) {
  run([] {
    Workload sandbox{workload()};
    const auto bash = sandbox.run({"/bin/bash", "-c", "exec 3<>/dev/tcp/203.0.113.10/1002; read -r line <&3; echo got $line"});
    EXPECT_THAT(bash.out, HasSubstr("got hello 1002")) << bash.err;
    const auto refused = sandbox.run({"/bin/bash", "-c", "exec 3<>/dev/tcp/203.0.113.10/2002"});
    EXPECT_THAT(refused.err, HasSubstr("Permission denied"));
    const auto seen = sandbox.decider.seen();
    ASSERT_FALSE(seen.empty());
    EXPECT_THAT(seen[0].identity->executable.path, HasSubstr("bash"));
    const auto python = sandbox.run({"/usr/bin/python3", "-c",
                                     "import asyncio\n"
                                     "async def one(port):\n"
                                     "  r, w = await asyncio.open_connection('203.0.113.10', port)\n"
                                     "  line = await r.readline(); w.write(b'ping'); await w.drain()\n"
                                     "  return line.decode().strip() + (await r.readexactly(4)).decode()\n"
                                     "async def main():\n"
                                     "  print(await asyncio.gather(*[one(1000 + i % 40) for i in range(40)]))\n"
                                     "asyncio.run(main())\n"});
    EXPECT_THAT(python.out, HasSubstr("hello 1039ping")) << python.err;
  });
}

TEST_P(Connect, Measured_Latency) {
  run([] {
    Workload sandbox{workload()};
    ASSERT_TRUE(sandbox.start_probe({"server", "7007"}).ok());
    for (int i = 0; i < 200 && !sandbox.probe({"connect", "127.0.0.1", "7007"}).out.starts_with("connect=0 "); ++i) {
    }
    std::printf("[ MEASURED ] %s external: %s", GetParam().name, sandbox.probe({"latency", "500", "203.0.113.10", "1000"}).out.c_str());
    std::printf("[ MEASURED ] %s loopback: %s", GetParam().name, sandbox.probe({"latency", "2000", "127.0.0.1", "7007"}).out.c_str());
    EXPECT_EQ(sandbox.decider.failed_allows(), 0);
  });
}

}  // namespace
}  // namespace openshell::isolation::testing
