#include "allocator/base/asked_site.h"

_Thread_local struct asked_by asked_by;
