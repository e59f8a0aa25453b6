// Signals in both modes: the workload's own work natively or mediated, and none reaches the sandbox.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <csignal>

#include "tests/isolation/isolation/sandbox_fixture.hpp"

namespace openshell::isolation::testing {
namespace {

using ::testing::HasSubstr;

struct Mode {
  const char* name;
  bool mediated, rootless;
};
class Signals : public ::testing::TestWithParam<Mode> {
 protected:
  void run(const std::function<void()>& body) { in_sandbox({true, GetParam().rootless}, body); }
  static Workload::Options workload() {
    Workload::Options options;
    options.mediated_signals = GetParam().mediated;
    return options;
  }
};
INSTANTIATE_TEST_SUITE_P(Modes, Signals,
                         ::testing::Values(Mode{"LandlockScope", false, false}, Mode{"Mediated", true, false},
                                           Mode{"MediatedRootless", true, true}),
                         [](const auto& param) { return std::string{param.param.name}; });

TEST_P(Signals, SIG_11_OrdinaryUse) {
  run([] {
    Workload sandbox{workload()};
    const auto sh = [&](const std::string& script) { return sandbox.run({"/bin/bash", "-c", script}); };
    EXPECT_EQ(sandbox.run({"timeout", "0.2", "sleep", "9"}).status.normalized(), 124);
    EXPECT_EQ(sh("sleep 9 & kill -TERM $!; wait $!; echo $?").out, "143\n");
    EXPECT_EQ(sh("kill -0 999999 2>/dev/null; echo $?; kill -0 $$; echo $?").out, "1\n0\n");
    EXPECT_EQ(sh("trap 'echo usr1' USR1; kill -USR1 $$; echo after").out, "usr1\nafter\n");
    EXPECT_EQ(sh("set -m; (sleep 9 | sleep 9) & sleep 0.1; kill -TERM -$!; wait $!; echo $?").out, "143\n");
    EXPECT_EQ(sh("trap 'echo group' TERM; kill -TERM 0; echo alive").out, "group\nalive\n");
    EXPECT_EQ(sandbox.run({"sh", "-c", "kill -ABRT $$"}).status.normalized(), 134);
  });
}

TEST_P(Signals, SIG_19_SIG_20_SIG_21_ThreadsAndQueues) {
  run([] {
    Workload sandbox{workload()};
    const auto python =
        sandbox.run({"/usr/bin/python3", "-c",
                     "import ctypes,signal,threading,time,os,errno\n"
                     "libc=ctypes.CDLL(None,use_errno=True)\n"
                     "signal.pthread_sigmask(signal.SIG_BLOCK,[signal.SIGUSR2])\n"
                     "got=[]\n"
                     "signal.signal(signal.SIGUSR1,lambda *a: got.append(1))\n"
                     "t=threading.Thread(target=time.sleep,args=(0.2,)); t.start()\n"
                     "signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)\n"
                     "os.setresuid(os.getuid(),os.getuid(),os.getuid())\n"
                     "t.join(); print('threads',len(got))\n"
                     "signal.pthread_sigmask(signal.SIG_BLOCK,[signal.SIGUSR2])\n"
                     "libc.sigqueue(os.getpid(),signal.SIGUSR2,ctypes.c_void_p(42))\n"
                     "i=signal.sigwaitinfo([signal.SIGUSR2]); print('queued',i.si_code,i.si_pid==os.getpid())\n"
                     "info=(ctypes.c_int*32)(); info[2]=0\n"  // si_code 0: a forged kill
                     "child=os.fork()\n"
                     "if child==0: time.sleep(9); os._exit(0)\n"
                     "r=libc.syscall(129,child,signal.SIGTERM,info); print('forged',r,ctypes.get_errno()==errno.EPERM)\n"
                     "info[2]=-6\n"
                     "r=libc.syscall(129,child,signal.SIGTERM,info); print('tkill code',r,ctypes.get_errno()==errno.EPERM)\n"
                     "print('bad',libc.kill(child,65),ctypes.get_errno()==errno.EINVAL)\n"
                     "os.kill(child,9); print('ended',os.waitstatus_to_exitcode(os.waitpid(child,0)[1]))\n"});
#if defined(__x86_64__)
    EXPECT_EQ(python.out, "threads 1\nqueued -1 True\nforged -1 True\ntkill code -1 True\nbad -1 True\nended -9\n") << python.err;
#endif
  });
}

TEST_P(Signals, SIG_13_KillAllReachesEverybodyButTheSandbox) {
  run([] {
    Workload sandbox{workload()};
    ASSERT_TRUE(sandbox.start_probe({"wait"}).ok());
    ASSERT_TRUE(sandbox.start_probe({"wait"}).ok());
    const auto result = sandbox.run({"/bin/bash", "-c", "kill -KILL -1; echo survived"});
    EXPECT_EQ(result.out, "survived\n") << result.err;
    for (int look = 0; look < 1000 && !sandbox.tree.descendants()->empty(); ++look) ::poll(nullptr, 0, 5);
    EXPECT_TRUE(sandbox.tree.descendants()->empty());
    EXPECT_TRUE(sandbox.broker->healthy());
  });
}

TEST_P(Signals, SIG_26_NothingIsNotifiedWhereTheKernelScopes) {
  run([] {
    Workload sandbox{workload()};
    const auto before = sandbox.broker->statistics().notifications;
    EXPECT_EQ(sandbox.run({"/bin/bash", "-c", "trap : USR1; for i in {1..500}; do kill -USR1 $$; done; echo done"}).out, "done\n");
    const auto notified = sandbox.broker->statistics().notifications - before;
    if (GetParam().mediated)
      EXPECT_GE(notified, 500u);
    else
      EXPECT_LT(notified, 10u) << "bash itself looks for a name service or two";
  });
}

TEST_P(Signals, FreezeNobodyIsContinued) {
  run([] {
    if (!GetParam().mediated) return;  // there the repeated passes of freeze() deal with it
    Workload sandbox{workload()};
    const auto sleeper = sandbox.start_probe({"wait"});
    ASSERT_TRUE(sleeper.ok());
    sandbox.broker->freeze();
    const auto result = sandbox.run({"/bin/bash", "-c", "kill -CONT " + std::to_string(sleeper->pid) + " || echo refused"});
    EXPECT_EQ(result.out, "refused\n");
    sandbox.broker->resume();
    EXPECT_EQ(sandbox.run({"/bin/bash", "-c", "kill -CONT " + std::to_string(sleeper->pid) + " && echo sent"}).out, "sent\n");
  });
}

}  // namespace
}  // namespace openshell::isolation::testing
