#include "api/service.hpp"
