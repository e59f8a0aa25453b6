// Stands in for openshell-sandbox and for openshell-supervisor in the tests of the driver: statically linked, so that it runs in any root.
// As PID 1 it writes down what it sees and can do; as supervisor it confirms and waits. Which it is says its first argument.
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <fstream>
#include <iostream>
#include <sstream>
#include <string>

namespace {

std::string read_text(const std::string& path) {
  std::ifstream file{path};
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::string list(const char* path) {
  std::string names;
  DIR* directory = opendir(path);
  if (directory == nullptr) return std::string("errno ") + std::to_string(errno);
  while (const dirent* entry = readdir(directory)) names += std::string(entry->d_name) + " ";
  closedir(directory);
  return names;
}

int open_error(const char* path, int flags) {
  const int fd = open(path, flags, 0600);
  if (fd < 0) return errno;
  close(fd);
  return 0;
}

int connect_error(const char* address, int port) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<unsigned short>(port));
  inet_pton(AF_INET, address, &to.sin_addr);
  const int result = connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to);
  const int error = result == 0 ? 0 : errno;
  close(fd);
  return error;
}

int unix_error(const std::string& path) {
  const int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un to{};
  to.sun_family = AF_UNIX;
  strncpy(to.sun_path, path.c_str(), sizeof to.sun_path - 1);
  const int result = connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to);
  const int error = result == 0 ? 0 : errno;
  close(fd);
  return error;
}

int be_sandbox(int argc, char** argv) {
  std::ofstream report{"/sandbox/.report"};
  report << "pid=" << getpid() << "\nuid=" << getuid() << "\neuid=" << geteuid() << "\ngid=" << getgid()
         << "\ngroups=" << getgroups(0, nullptr) << "\n";
  char name[256] = {};
  gethostname(name, sizeof name);
  report << "hostname=" << name << "\nargc=" << argc << "\n";
  report << "environment=" << (environ[0] == nullptr ? "" : environ[0]) << "\n";
  report << "root=" << list("/") << "\nrun=" << list("/run") << "\nhome=" << list("/home") << "\nopenshell=" << list("/.openshell/sandbox")
         << "\n";
  report << "write_usr=" << open_error("/usr/.openshell-test", O_CREAT | O_WRONLY)
         << "\nwrite_etc=" << open_error("/etc/.openshell-test", O_CREAT | O_WRONLY)
         << "\nwrite_root=" << open_error("/.openshell-test", O_CREAT | O_WRONLY)
         << "\nwrite_var=" << open_error("/var/.openshell-test", O_CREAT | O_WRONLY)
         << "\nwrite_tmp=" << open_error("/tmp/test", O_CREAT | O_WRONLY)
         << "\nwrite_sandbox=" << open_error("/sandbox/test", O_CREAT | O_WRONLY)
         << "\nwrite_shm=" << open_error("/dev/shm/test", O_CREAT | O_WRONLY) << "\nwrite_null=" << open_error("/dev/null", O_WRONLY)
         << "\nread_root=" << open_error("/root", O_RDONLY) << "\nread_shadow=" << open_error("/etc/shadow", O_RDONLY)
         << "\nwrite_sysctl=" << open_error("/proc/sys/net/ipv4/ip_unprivileged_port_start", O_WRONLY) << "\n";
  report << "connect_test_net=" << connect_error("198.51.100.7", 80)
         << "\nhost_listener=" << connect_error("127.0.0.1", atoi(read_text("/sandbox/.host_port").c_str()))
         << "\nhost_socket=" << unix_error("/run/dbus/system_bus_socket")
         << "\nabstract=" << unix_error(std::string("\0openshell-driver-test", 22)) << "\n";
  report << "port_start=" << read_text("/proc/sys/net/ipv4/ip_unprivileged_port_start") << "resolv=" << read_text("/etc/resolv.conf");
  report << "passwd=" << read_text("/etc/passwd");
  std::string bundle = read_text("/etc/ssl/certs/ca-certificates.crt");
  report << "bundle_bytes=" << bundle.size() << "\n";
  report << "pids_max=" << read_text("/sys/fs/cgroup/pids.max") << "\n";
  report << "--- status\n" << read_text("/proc/self/status") << "--- mountinfo\n" << read_text("/proc/self/mountinfo");
  report.close();
  (void)!system("true");
  if (access("/sandbox/.greedy", F_OK) == 0) {
    for (std::string all;;) all.append(1 << 20, 'x');
  }
  const bool stubborn = access("/sandbox/.stubborn", F_OK) == 0;
  if (stubborn)
    signal(SIGTERM, SIG_IGN);
  else
    signal(SIGTERM, [](int) { _exit(0); });
  // A child of its own session, which only the end of the PID namespace takes along.
  if (fork() == 0) {
    setsid();
    for (;;) pause();
  }
  rename("/sandbox/.report", "/sandbox/report");
  std::cout << "sandbox is up with " << argv[0] << std::endl;
  for (;;) pause();
}

std::string value_of(int argc, char** argv, const std::string& flag) {
  for (int i = 1; i + 1 < argc; ++i) {
    if (argv[i] == flag) return argv[i + 1];
  }
  return {};
}

int be_supervisor(int argc, char** argv) {
  const char* behaviour = getenv("OPENSHELL_LOG_LEVEL");
  const std::string what = behaviour == nullptr ? "" : behaviour, state = value_of(argc, argv, "--state-dir");
  const std::string descriptor = read_text(value_of(argc, argv, "--backend-descriptor-file"));
  if (what == "exit7") return 7;
  if (what == "abort") kill(getpid(), SIGKILL);
  const std::string place = value_of(argc, argv, "--log-dir") + "/supervisor-report";
  std::ofstream report{place + ".part"};
  report << "uid=" << getuid() << "\ngid=" << getgid() << "\ngroups=" << getgroups(0, nullptr) << "\ndescriptor_bytes=" << descriptor.size()
         << "\n";
  for (char** variable = environ; *variable != nullptr; ++variable) report << "env " << *variable << "\n";
  for (int i = 0; i < argc; ++i) report << "arg " << argv[i] << "\n";
  report << "fds=" << list("/proc/self/fd") << "\n--- status\n" << read_text("/proc/self/status");
  report.close();
  rename((place + ".part").c_str(), place.c_str());  // whoever sees it sees all of it
  if (what != "unconfirmed") {
    const auto at = descriptor.find("\"generation\":\"");
    std::ofstream confirmed{state + "/.confirmed"};
    confirmed << descriptor.substr(at + 14, descriptor.find('"', at + 14) - at - 14);
    confirmed.close();
    rename((state + "/.confirmed").c_str(), (state + "/confirmed").c_str());
  }
  signal(SIGTERM, [](int) { _exit(0); });
  for (;;) pause();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && strcmp(argv[1], "as-sandbox") == 0) return be_sandbox(argc, argv);
  return be_supervisor(argc, argv);
}
